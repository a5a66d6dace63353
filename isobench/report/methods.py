"""Compare each method with plain fine-tuning over all its tasks: a row for each method, made from ``cells``.

Columns of one task show the same runs, so only the first of them counts across tasks. Published numbers have no part
in it.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR, name_group, read_numbers
from isobench.statistics.resampling import (
    mean_difference,
    mean_difference_interval,
    probability_of_improvement,
    smallest_stratified_p,
    stratified_permutation_test,
)
from isobench.statistics.seeds import ALPHA, Arms, detectable_difference, holm, pooled_sd

# Column of ``compare_methods`` -> what it holds.
METHODS = {
    "group": "encoder, and the part of the runs if there are several: only methods of one group are compared",
    "method": "its name",
    "settings": "the selected configuration in words; empty if there was no choice",
    "candidates": "configurations from which it was selected by the scores that are shown",
    "columns": "list of the columns of scores over which ``score`` is the mean, one for each task",
    "score": "mean over seeds, and over these columns if there are several; missing without scores",
    "sd": "over seeds in the only column; missing if there are several",
    "values": "list of the seeds' scores in the only column; empty if there are several",
    "value_seeds": "list of these seeds",
    "seeds": "list of the different numbers of seeds in its cells",
    "compared": "list of the columns in which it is compared with plain fine-tuning",
    "difference": "from plain fine-tuning in points, mean over these columns",
    "low": "lower end of its 95% bootstrap interval",
    "high": "upper end",
    "improvement": "probability that a run of the method beats one of plain fine-tuning",
    "improvement_low": "lower end of its 95% bootstrap interval",
    "improvement_high": "upper end",
    "p": "two-sided p of the permutation test within tasks; missing without a test, as of single seeds",
    "p_holm": "the same after Holm's correction over methods",
    "relabellings": "how many relabellings the test drew at random; missing if it is exact",
    "fewest_seeds": "of the method, or of plain fine-tuning, in one of the compared columns; 0 without a test",
    "is_shown": "whether the difference is larger than chance explains",
    "least_p": "smallest p that the test can give with these numbers of seeds",
    "single_seeds": "column -> difference, of those in which it or plain fine-tuning has a single seed",
    "single_tasks": "column -> difference, of those that Welch's test finds after Holm's correction over all cells",
    "constant_tasks": "list of the tasks on which a run of it or of plain fine-tuning is a constant predictor",
    "ev1": "share of the variance in the first principal component of the calibrated embeddings, mean over runs",
    "isoscore": "IsoScore of the calibrated embeddings, mean over runs",
    "time": "as in ``cells``",
    "troubles": "list of what went wrong, an entry for each run and column of scores",
}


def compare_methods(cells: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Build a row for each group and method of ``cells``, plain fine-tuning too; the columns are those of METHODS."""
    cells = list_score_cells(cells)
    # pandas groups cells by their values, and a value of a cell is a list here
    groups: dict[str, dict[str, list[Any]]] = {}
    for cell in cells.itertuples():
        groups.setdefault(cell.group, {}).setdefault(cell.method, []).append(cell)
    chosen = runs[runs["selected"]]
    names = [name_group(*names) for names in zip(chosen["encoder"], chosen["part"], strict=True)]
    runs_by_method = dict(list(chosen.groupby([names, "method"])))
    rows = []
    for group, methods in groups.items():
        columns = list(dict.fromkeys(cell.column for cell in chain.from_iterable(methods.values())))
        usable = [{cell.column for cell in of_method if _is_usable(cell)} for of_method in methods.values()]
        # A method without any usable score is not counted; otherwise the other methods would have no mean.
        usable = [usable_columns for usable_columns in usable if usable_columns]
        shown = [column for column in columns if all(column in usable_columns for usable_columns in usable)]
        if len(columns) == 1:
            shown = columns
        base = {cell.column: cell for cell in methods.get(BASE_METHOD, [])}
        for method, of_method in methods.items():
            row = {"group": group, "method": method, "settings": of_method[0].settings, "time": of_method[0].time}
            row |= _average_scores(of_method, shown) | _compare_over_tasks(of_method)
            row["constant_tasks"] = []
            for cell in of_method:
                troubles = {*cell.troubles, *base.get(cell.column, cell).troubles}
                if (cell.values or cell.troubles) and CONSTANT_PREDICTOR in troubles:
                    row["constant_tasks"].append(cell.task)
            runs_of_method = runs_by_method.get((group, method), chosen.iloc[:0])
            rows.append(row | _describe_runs(runs_of_method, {cell.task for cell in of_method}))
    table = pd.DataFrame(rows, columns=list(METHODS))
    table["p_holm"] = holm(list(table["p"].astype(float)))
    table["is_shown"] = table["p_holm"] < ALPHA
    return table


def list_score_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of scores, of several columns of one task the first.

    Of a column that several tables show, the cell that is compared with plain fine-tuning is taken.
    """
    scores = cells[cells["kind"] == "score"]
    scores = scores.assign(order=range(len(scores)))
    once = scores.sort_values("compared", ascending=False, kind="stable").drop_duplicates(
        ["group", "method", "column"]
    )
    first = scores.drop_duplicates(["group", "task"]).set_index(["group", "task"])["column"]
    shown = [first[group, task] == column for group, task, column in once[["group", "task", "column"]].to_numpy()]
    return once[np.array(shown, bool)].sort_values("order").drop(columns="order")


def _is_usable(cell: Any) -> bool:
    """Return True if a cell's values may be averaged: it has some, no run is a constant predictor, none is NaN."""
    return bool(cell.values) and CONSTANT_PREDICTOR not in cell.troubles and not any(map(math.isnan, cell.values))


def list_arms(cells: Iterable[Any]) -> dict[str, Arms]:
    """List the scores of a method and of plain fine-tuning in the columns in which both may be averaged."""
    return {
        cell.column: (cell.values, cell.base)
        for cell in cells
        if cell.compared and _is_usable(cell) and not any(map(math.isnan, cell.base))
    }


def _average_scores(cells: Sequence[Any], columns: list[str]) -> dict[str, Any]:
    """Average a method's scores over the columns in which the methods of its group can be compared."""
    by_column = {cell.column: cell for cell in cells}
    scored = [by_column[column].values for column in columns if column in by_column and _is_usable(by_column[column])]
    found: dict[str, Any] = {
        "columns": columns, "score": math.nan, "sd": math.nan, "values": [], "value_seeds": [],
        "seeds": sorted({len(cell.values) for cell in cells}),
        "troubles": list(chain.from_iterable(cell.troubles for cell in cells)),
    }  # fmt: skip
    is_single = len({cell.column for cell in cells}) == 1 == len(columns)
    if is_single and columns[0] in by_column:
        found |= {"values": by_column[columns[0]].values, "value_seeds": by_column[columns[0]].seeds}
    if scored and len(scored) == len(columns):
        found["score"] = statistics.fmean(map(statistics.fmean, scored))
        found["sd"] = statistics.stdev(scored[0]) if is_single and len(scored[0]) > 1 else math.nan
    return found


def _compare_over_tasks(cells: Sequence[Any]) -> dict[str, Any]:
    """Compare a method with plain fine-tuning over the tasks on which both have two seeds, else on single seeds."""
    arms = list_arms(cells)
    tested = {column: pair for column, pair in arms.items() if min(map(len, pair)) > 1}
    single = {column: mean_difference([pair]) for column, pair in arms.items() if column not in tested}
    found: dict[str, Any] = {"compared": list(tested or arms), "fewest_seeds": 0, "single_tasks": {}, "p": math.nan}
    found["single_seeds"] = single
    if not tested:
        return found | ({"difference": statistics.fmean(single.values())} if single else {})
    tasks = list(tested.values())
    difference, improvement = mean_difference_interval(tasks), probability_of_improvement(tasks)
    test = stratified_permutation_test(tasks)
    survivors = {cell.column: cell.difference for cell in cells if cell.column in tested and cell.p_holm < ALPHA}
    return found | {
        "difference": difference.value, "low": difference.low, "high": difference.high,
        "improvement": improvement.value, "improvement_low": improvement.low, "improvement_high": improvement.high,
        "p": test.p, "relabellings": test.drawn, "least_p": smallest_stratified_p(tasks),
        "fewest_seeds": min(len(arm) for pair in tasks for arm in pair), "single_tasks": survivors,
    }  # fmt: skip


def _describe_runs(runs: pd.DataFrame, tasks: set[str]) -> dict[str, Any]:
    """Average the isotropy of a method's selected runs, and find from how many configurations they were chosen."""
    on_tasks = runs[runs["task"].isin(tasks)]
    found: dict[str, Any] = {"candidates": on_tasks["candidates"].max() if len(on_tasks) else 1}
    usable = on_tasks[on_tasks["failure"].isna()]
    for name in ("ev1", "isoscore"):
        values = pd.Series(read_numbers(usable, f"embedding/{name}"), usable.index)
        means = values[np.isfinite(values)].groupby(usable["task"], sort=False).mean().dropna()
        found[name] = means.mean() if len(means) else math.nan
    return found


def find_detectable_differences(cells: pd.DataFrame) -> dict[str, float]:
    """Compute for each column the smallest difference that a t-test would usually find, in points.

    Columns without spread are left out. Of several groups of runs, such as encoders, the one with the largest
    such difference counts.
    """
    pairs = group_tested_arms(cells)
    detectable: dict[str, float] = {}
    for (_, column), arms in pairs.items():
        value = column_detectable_difference(arms)
        if value > 0 and math.isfinite(value):
            detectable[column] = max(value, detectable.get(column, 0.0))
    return detectable


def group_tested_arms(cells: pd.DataFrame) -> dict[tuple[str, str], list[Arms]]:
    """Group the arms of all methods that a test can compare: (group, column) -> one pair for each method."""
    pairs: dict[tuple[str, str], list[Arms]] = {}
    for cell in list_score_cells(cells).itertuples():
        for column, arms in list_arms([cell]).items():
            if min(map(len, arms)) > 1:
                pairs.setdefault((cell.group, column), []).append(arms)
    return pairs


def column_detectable_difference(pairs: Sequence[Arms]) -> float:
    """Compute the smallest difference that a test would usually find in a column.

    It follows from the pooled spread of the column's runs and from the smallest arms.

    Args:
        pairs: for each method its scores and those of plain fine-tuning, which are the same in every pair.
    """
    baseline = pairs[0][1]
    spread = pooled_sd([baseline, *(ours for ours, _ in pairs)])
    return detectable_difference(spread, min(len(ours) for ours, _ in pairs), len(baseline))
