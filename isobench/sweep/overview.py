"""Print the states of a sweep's runs: what ``dry_run`` and ``isobench status`` show."""

import time
from collections import Counter
from collections.abc import Sequence

from isobench.common.terminal import format_count, make_console, make_table
from isobench.config.schema import format_method_name
from isobench.runs.grouping import (
    find_varying_settings,
    group_over_seeds,
    read_run_names,
    read_settings,
    shorten_setting_names,
)
from isobench.runs.run import Run, format_run_name
from isobench.runs.state import OPEN_STATES, RUN_STATES, format_state_counts
from isobench.sweep.forecast import Forecast, compute_device_seconds, describe_memory, format_duration

MOST_GROUPS = 60  # lines of the table with one value of each setting
MAX_LISTED_RUNS = 20  # runs listed one by one in each state


def print_overview(title: str, runs: list[Run], starts: Sequence[str] = OPEN_STATES) -> None:
    """Print a line for each group of runs that differ in their seeds only, then the totals.

    ``starts`` are the states of runs that a sweep would start; the forecast is of these, the queued and the running.
    """
    forecast, coming = Forecast(runs), (*starts, "queued", "running")
    varying = find_varying_settings(runs)
    labels = ("task", "encoder", "method", *shorten_setting_names(varying).values(), "seeds")
    shown = [name for name in RUN_STATES if name in {run.state for run in runs}]
    table = make_table(title, labels, (*shown, "forecast"))
    groups = group_over_seeds(runs, varying)
    if len(groups) > MOST_GROUPS:  # a line for all values of the settings that vary
        groups = group_over_seeds(runs, [])
    for group in groups:
        settings = read_settings(group, varying)
        counts = Counter(run.state for run in group)
        todo = [run for run in group if run.state in coming]
        table.add_row(
            *read_run_names(group[0].cfg),
            *(", ".join(dict.fromkeys(str(values[name]) for values in settings)) for name in varying),
            _format_seed_ranges([run.cfg.seed for run in group]),
            *(str(counts[name] or "") for name in shown),
            format_forecast(todo, forecast),
        )
    out = make_console()
    out.print(table)
    out.print(format_state_counts(runs), highlight=False)
    todo = [run for run in runs if run.state in coming]
    out.print(_format_device_time(runs, todo, forecast), highlight=False)


def format_forecast(todo: list[Run], forecast: Forecast) -> str:
    """Format the forecast of some runs' device time, with ``?`` for runs without one; empty without runs."""
    seconds = [forecast.estimate_seconds(run.cfg) for run in todo]
    known = [value for value in seconds if value is not None]
    if not todo:
        return ""
    return "?" if not known else format_duration(sum(known)) + (" + ?" if len(known) < len(todo) else "")


def _format_device_time(runs: list[Run], todo: list[Run], forecast: Forecast) -> str:
    spent = sum(compute_device_seconds(run.record) for run in runs if run.record)
    line = f"Device time so far: {format_duration(spent)}; still to come: {format_forecast(todo, forecast) or 'none'}"
    without_forecast = sum(forecast.estimate_seconds(run.cfg) is None for run in todo)
    if without_forecast:
        unknown = f"unknown for {format_count(without_forecast, 'run')}"
        line += f" ({unknown}: carry out one run of each task and encoder on as many training examples first)"
        if runs[0].cfg.scale == "paper" and (hours := runs[0].cfg.experiment.gpu_hours):
            assumed = "page how-to/memory says in which precision; in 32 bits it may take twice as long"
            line += f"; the paper's whole grid takes roughly {hours:g} GPU-hours ({assumed})"
    return line


def print_details(runs: list[Run]) -> None:
    """Print where the running runs are, why runs failed, and where the interrupted ones stopped."""
    out = make_console()
    for name in ("running", "failed", "interrupted", "damaged"):
        in_state = [run for run in runs if run.state == name]
        for run in in_state[:MAX_LISTED_RUNS]:
            out.print(f"{name}: {format_run_name(run.cfg)}: {_describe_run(run)}", highlight=False)
        if len(in_state) > MAX_LISTED_RUNS:
            out.print(f"... and {len(in_state) - MAX_LISTED_RUNS} more {name}", highlight=False)


def _describe_run(run: Run) -> str:
    if run.trouble:
        return run.trouble
    if run.record is not None and (failure := run.record.failure):
        step = f" at step {failure.step}" if failure.step else ""
        return f"{failure.name}{step}: {failure.message} ({run.record.where.log or run.folder.result_file})"
    beat = run.beat
    if beat is None:
        return run.state
    step = f"step {beat.step} of {beat.steps}" if beat.steps else beat.state
    if beat.loss is not None:
        step += f", loss {beat.loss:.3g}"
    if run.state == "running" and beat.step is not None and beat.steps and beat.speed:
        step += f", {format_duration((beat.steps - beat.step) / beat.speed)} left"
    job = f", job {beat.job}" if beat.job else ""
    log = f" ({beat.log})" if beat.log else ""
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(beat.since))
    return f"{step}, on {beat.host}{job} since {since}{log}"


def _format_seed_ranges(seeds: list[int]) -> str:
    """Format seeds as ranges: ``1-5, 8`` for 1, 2, 3, 4, 5, 8."""
    ranges: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if ranges and seed == ranges[-1][-1] + 1:
            ranges[-1][1:] = [seed]
        else:
            ranges.append([seed])
    return ", ".join("-".join(map(str, ends)) for ends in ranges)


def print_expectations(todo: list[Run], runs: list[Run], launch: str) -> None:
    """Print what a sweep's ``runs``, of which ``todo`` would start, need and can show.

    ``launch`` says how they would be launched, or is empty.
    """
    lines = [*describe_memory([run.cfg for run in todo]), launch, _describe_seeds(runs)]
    for line in filter(None, lines):
        make_console().print(line, highlight=False, soft_wrap=True)


def _describe_seeds(runs: list[Run]) -> str:
    """Say which difference a sweep with few seeds can find; empty if it has enough seeds, or a single method."""
    from isobench.statistics.seeds import ENOUGH_SEEDS, find_detectable_spreads  # imports numpy

    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(format_method_name(run.cfg.calibration), set()).add(run.cfg.seed)
    few, tests = min(map(len, seeds.values())), len(seeds) - 1
    if not tests or few >= ENOUGH_SEEDS:
        return ""
    enough = f"{ENOUGH_SEEDS} seeds find one of {find_detectable_spreads(ENOUGH_SEEDS, tests):.1f}"
    if few == 1:
        return f"1 seed can't show a difference between {tests + 1} methods; {enough} standard deviations"
    found = find_detectable_spreads(few, tests)
    return (
        f"{few} seeds show a difference between {tests + 1} methods only if it is large, about {found:.1f} standard "
        f"deviations over seeds; {enough}"
    )
