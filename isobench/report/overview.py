"""Build the lines of the page's first table: what each method gains, does to the embeddings, and costs."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isobench.report.baseline_comparison import MethodKey, is_usable
from isobench.report.document import Cell, OverviewLine, ReportTable, TidyRows
from isobench.report.method_effects import Effects
from isobench.report.parts import name_group
from isobench.statistics.seeds import Estimate

MethodRuns = dict[tuple[str, str], TidyRows]  # (group, method) -> its selected runs


def build_overview(
    tables: Sequence[ReportTable], effects: Effects, runs: TidyRows, parts: Mapping[str, str]
) -> list[OverviewLine]:
    """Build a line for each encoder, part and method of the tables.

    Args:
        tables: of the report.
        effects: from ``measure_effects`` of these tables.
        runs: tidy rows; those that are not ``selected`` are left out.
        parts: key of a run -> name of its part; a run without an entry belongs to the only part.
    """
    columns_by_group = collect_score_columns(tables, effects)
    runs_by_method = group_selected_runs(runs, parts)
    lines: dict[MethodKey, OverviewLine] = {}
    for table in tables:
        for line in table.lines:
            name = (table.name_group(line), line.method)
            if name in lines or not columns_by_group.get(name[0]):
                continue
            columns = columns_by_group[name[0]]
            cells = {column: cell for column in columns if (cell := effects.runs.cells[name].get(column))}
            lines[name] = OverviewLine(*name, settings=line.settings, time=line.time if line.time != "-" else "")
            add_scores(lines[name], columns, list_common_columns(name[0], columns, effects), cells)
            add_difference(lines[name], name, effects)
            tasks = {effects.runs.find_task(column) for column in columns}
            add_runs(lines[name], [run for run in runs_by_method.get(name, []) if run.get("task") in tasks])
    return list(lines.values())


def collect_score_columns(tables: Sequence[ReportTable], effects: Effects) -> dict[str, list[str]]:
    """Collect the columns of scores of each group, only the first of each task: group -> columns."""
    columns: dict[str, dict[str, str]] = {}  # group -> task -> column
    for table in tables:
        for line in table.lines:
            own = columns.setdefault(table.name_group(line), {})
            for column in table.scores:
                own.setdefault(effects.runs.find_task(column), column)
    return {group: list(own.values()) for group, own in columns.items()}


def list_common_columns(group: str, columns: list[str], effects: Effects) -> list[str]:
    """List the columns in which every method of a group has scores that may be averaged.

    A method without such scores in any column is not counted; otherwise the other methods would have no mean.
    """
    own_cells = [cells for (own_group, _), cells in effects.runs.cells.items() if own_group == group]
    usable = [{c for c in columns if c in cells and is_usable(cells[c])} for cells in own_cells]
    return [column for column in columns if all(column in own for own in usable if own)]


def add_scores(line: OverviewLine, columns: list[str], common: list[str], cells: Mapping[str, Cell]) -> None:
    """Fill in score, spread, seeds and troubles.

    Args:
        line: the line that is filled in.
        columns: the columns of scores of the group.
        common: the columns over which the methods' means can be compared.
        cells: column -> the method's cell.
    """
    line.columns = columns if len(columns) == 1 else common
    if len(columns) == 1:
        line.cell = cells.get(columns[0])
    scored = [cells[column].values for column in line.columns if column in cells and is_usable(cells[column])]
    if scored and len(scored) == len(line.columns):
        line.score = statistics.fmean(map(statistics.fmean, scored))
        line.sd = statistics.stdev(scored[0]) if line.cell and len(scored[0]) > 1 else None
    line.seeds = sorted({len(cell.values) for cell in cells.values()})
    line.troubles = dict(sum((Counter(cell.troubles) for cell in cells.values()), Counter()))


def add_difference(line: OverviewLine, name: MethodKey, effects: Effects) -> None:
    """Fill in the difference from plain fine-tuning as in the evidence; a difference of single seeds has no test."""
    if effect := effects.by_method.get(name):
        line.difference, line.compared = effect.difference, len(effect.columns)
        line.fewest_seeds = effect.fewest_seeds
        line.p, line.is_shown = effect.adjusted, effect.is_shown
    elif name in effects.single_seeds:
        line.difference = Estimate(effects.single_seeds[name], math.nan, math.nan)
        line.compared = len(effects.arms[name].single_seed)


def add_runs(line: OverviewLine, runs: TidyRows) -> None:
    """Fill in isotropy and the number of candidate configurations, which the method's selected runs hold."""
    line.ev1, line.isoscore = (average_over_tasks(runs, f"embedding/{measure}") for measure in ("ev1", "isoscore"))
    line.candidates = max((run.get("candidates") or 1 for run in runs), default=1)


def average_over_tasks(runs: TidyRows, measure: str) -> float | None:
    """Average a measure over the runs of each task, then over tasks; None if no run has it."""
    by_task: dict[Any, list[float]] = {}
    for run in runs:
        value = run.get(measure)
        if value is not None and math.isfinite(value) and not run.get("failure"):
            by_task.setdefault(run.get("task"), []).append(value)
    return statistics.fmean(map(statistics.fmean, by_task.values())) if by_task else None


def group_selected_runs(runs: Iterable[dict[str, Any]], parts: Mapping[str, str]) -> MethodRuns:
    """Group the selected runs: (encoder and part, method) -> runs."""
    groups: MethodRuns = {}
    for run in runs:
        if run.get("selected", True):
            encoder, part = str(run.get("encoder")), parts.get(str(run.get("key")), "")
            groups.setdefault((name_group(encoder, part), str(run.get("method"))), []).append(run)
    return groups
