"""The table of a sweep's states: what ``dry_run`` and ``isobench.status`` print."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from isobench.common.terminal import console
from isobench.runs.grouping import chosen, groups, names, varying_settings
from isobench.runs.row import Row
from isobench.runs.state import OPEN, STATES, State, summary
from isobench.sweep.forecast import Forecast, device_seconds, hours
from isobench.training.execute import label

SHOWN = 20  # runs listed one by one in each state


def print_overview(title: str, rows: list[Row], states: list[State], starts: Sequence[str] = OPEN) -> None:
    """One line for runs that differ in their seeds only, then the totals. ``starts``: states that are to do."""
    by_row = {id(row): state for row, state in zip(rows, states, strict=True)}
    forecast = Forecast(rows)
    varying = varying_settings(rows)
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in ("task", "encoder", "method", *(name.split(".")[1] for name in varying), "seeds"):
        table.add_column(name, overflow="fold")
    shown = [name for name in STATES if name in {state.name for state in states}]
    for name in (*shown, "forecast"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in groups(rows, varying):
        found = Counter(by_row[id(row)].name for row in group)
        todo = [row for row in group if by_row[id(row)].name in (*starts, "queued", "running")]
        table.add_row(
            *names(group[0].cfg),
            *chosen(group[0].cfg, varying),
            spans([row.cfg.seed for row in group]),
            *(str(found[name] or "") for name in shown),
            time_of(todo, forecast),
        )
    out = console()
    out.print(table)
    out.print(summary(states), highlight=False)
    out.print(cost_line(rows, states, forecast, starts), highlight=False)


def time_of(todo: list[Row], forecast: Forecast) -> str:
    """Forecast of some runs; ``?`` where there is nothing to tell it from."""
    seconds = [forecast.seconds(row.cfg) for row in todo]
    known = [value for value in seconds if value is not None]
    if not todo:
        return ""
    return "?" if not known else hours(sum(known)) + (" + ?" if len(known) < len(todo) else "")


def cost_line(rows: list[Row], states: list[State], forecast: Forecast, starts: Sequence[str]) -> str:
    """Device time spent, and still to come."""
    spent = sum(device_seconds(row.record) for row in rows if row.record)
    todo = [row for row, state in zip(rows, states, strict=True) if state.name in (*starts, "queued", "running")]
    line = f"Device time so far: {hours(spent)}; still to come: {time_of(todo, forecast) or 'none'}"
    unknown = sum(forecast.seconds(row.cfg) is None for row in todo)
    return line + (f" (no finished run of the same shape yet for {unknown} of them)" if unknown else "")


def print_details(rows: list[Row], states: list[State]) -> None:
    """Where the running runs are, why the failed ones failed, where the interrupted ones stopped."""
    out = console()
    for name in ("running", "failed", "interrupted", "damaged"):
        found = [(row, state) for row, state in zip(rows, states, strict=True) if state.name == name]
        for row, state in found[:SHOWN]:
            out.print(f"{name}: {label(row.cfg)}: {detail(row, state)}", highlight=False, markup=False)
        if len(found) > SHOWN:
            out.print(f"... and {len(found) - SHOWN} more {name}", highlight=False)


def detail(row: Row, state: State) -> str:
    """One line on one run."""
    if row.trouble:
        return row.trouble
    if row.record is not None:
        failure = row.record["failure"]
        step = f" at step {failure['step']}" if failure.get("step") else ""
        where = (row.record.get("where") or {}).get("log") or row.folder.result_file
        return f"{failure['name']}{step}: {failure['message']} ({where})"
    beat: dict[str, Any] = state.beat or {}
    step = f"step {beat['step']} of {beat['steps']}" if beat.get("steps") else beat["state"]
    job = f", job {beat['job']}" if beat.get("job") else ""
    log = f" ({beat['log']})" if beat.get("log") else ""
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(beat["since"]))
    return f"{step}, on {beat['host']}{job} since {since}{log}"


def spans(seeds: list[int]) -> str:
    """``1-5, 8`` for 1, 2, 3, 4, 5, 8."""
    parts: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
