"""Compare each method with plain fine-tuning over all its tasks: a row for each method, made from ``cells``.

Columns of one task show the same runs, so only the first of them counts across tasks. Published numbers have no part
in it.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR, label_method, name_group, read_numbers
from isobench.report.wording import DASH, format_columns, format_interval, format_p_value
from isobench.statistics.seeds import ALPHA, POWER, Arm, Arms, compare_runs, count_trials, holm

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
    "low": "lower end of its 95% interval, of the same test as p",
    "high": "upper end",
    "p": "two-sided p of the t-test over these columns, paired where seeds are shared; missing without a test",
    "test_seeds": "the shared seeds over which the test is paired; 0 if it is not paired",
    "trials": "configurations that selection tried of the favoured side, by which p is multiplied; else 1",
    "p_holm": "p times trials after Holm's correction over the methods of all groups",
    "is_shown": "whether the difference is larger than chance explains: p_holm below .05",
    "detectable": "smallest true difference that this test usually finds, at the first step of Holm's correction",
    "single_seeds": "column -> difference, of those in which it or plain fine-tuning has a single seed",
    "single_tasks": "of several columns, column -> difference of those with a mark of their own",
    "constant_tasks": "list of the tasks on which a run of it or of plain fine-tuning is a constant predictor",
    "ev1": "share of the variance in the first principal component of the calibrated embeddings, mean over runs",
    "isoscore": "IsoScore of the calibrated embeddings, mean over runs",
    "isotropy_tasks": "list of the tasks over which these two are means, the same in all rows of a group",
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
        if not shown:  # the column that most methods can show
            shown = [max(columns, key=lambda column: sum(column in own for own in usable))]
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
            tasks = {cell.task for cell in of_method}
            row["candidates"] = max(runs_of_method["candidates"][runs_of_method["task"].isin(tasks)], default=1)
            row["isotropy"] = _measure_isotropy(runs_of_method)
            rows.append(row)
        of_group = rows[-len(methods) :]
        _average_isotropy(of_group)
        bases = [row["candidates"] for row in of_group if row["method"] == BASE_METHOD] or [1]
        for row in of_group:
            row["trials"] = count_trials(row["candidates"], bases[0], row["difference"], len(row["compared"]))
    tested = [row for row in rows if not math.isnan(row["p"])]
    for row in tested:
        row["detectable"] = row["test"].find_detectable(len(tested) * row["trials"])
    for row, p in zip(rows, holm([row["p"] * row["trials"] for row in rows]), strict=True):
        row["p_holm"], row["is_shown"] = p, p < ALPHA
    return pd.DataFrame(rows, columns=list(METHODS)).astype({"detectable": float})


def list_score_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of scores, of several columns of one task the first.

    Of a column that several tables show, the cell that is compared with plain fine-tuning is taken.
    """
    scores = cells[cells["kind"] == "score"]
    first = scores.groupby(["group", "task"], sort=False)["column"].transform("first")
    compared_first = scores[scores["column"] == first].sort_values("compared", ascending=False, kind="stable")
    return compared_first.drop_duplicates(["group", "method", "column"]).sort_index()


def list_comparisons(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that have a p, each comparison once: Holm's family."""
    tested = cells[cells["p"].notna()]
    tested = tested.assign(key=tested["values"].map(tuple))
    return tested.drop_duplicates(["group", "method", "column", "key"]).drop(columns="key")


def name_method(methods: pd.DataFrame, row: Any) -> str:
    """Return the method's label, with its encoder and the part of the runs if there are several."""
    label = label_method(row.method)
    return f"{label} ({row.group})" if methods["group"].nunique() > 1 else label


def list_tested(methods: pd.DataFrame) -> list[Any]:
    """List the methods' rows that have a test against plain fine-tuning."""
    return [row for row in methods.itertuples() if row.method != BASE_METHOD and not math.isnan(row.p)]


def tabulate_comparisons(methods: pd.DataFrame) -> pd.DataFrame:
    """Lay out every comparison with plain fine-tuning as texts, a row for each method; empty without any.

    ``found at 80%``: the smallest true difference that such a test finds 80% of the time. Without two seeds, or where
    the difference is the same in all seeds, no test is possible: dashes.
    """
    lines = []
    for row in methods.itertuples():
        if row.method == BASE_METHOD or not row.compared:
            continue
        lines.append({
            "method": name_method(methods, row),
            "tasks": format_columns(row.compared),
            "difference": format_interval(row.difference, row.low, row.high),
            "p": format_p_value(row.p),
            "p after Holm": format_p_value(row.p_holm),
            "seeds": f"{row.test_seeds} paired" if row.test_seeds else DASH if math.isnan(row.p) else "unpaired",
            f"found at {POWER:.0%}": DASH if math.isnan(row.detectable) else f"{row.detectable:#.2g}".rstrip("."),
        })  # fmt: skip
    return pd.DataFrame(lines)


def _is_usable(cell: Any) -> bool:
    """Return True if a cell's values may be averaged: it has some, no run is a constant predictor, none is NaN."""
    return bool(cell.values) and CONSTANT_PREDICTOR not in cell.troubles and not any(map(math.isnan, cell.values))


def list_arms(cells: Iterable[Any]) -> dict[str, Arms]:
    """List the scores of a method and of plain fine-tuning in the columns in which both may be averaged."""
    return {
        cell.column: (Arm(cell.values, cell.seeds), Arm(cell.base, cell.base_seeds))
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
    tested = {column: pair for column, pair in arms.items() if count_seeds(pair) > 1}
    single = {column: compare_runs([pair]).value for column, pair in arms.items() if column not in tested}
    found: dict[str, Any] = {"compared": list(tested or arms), "single_tasks": {}, "single_seeds": single}
    if not tested:
        difference = statistics.fmean(single.values()) if single else math.nan
        return found | {"difference": difference, "p": math.nan, "test_seeds": 0}
    test = compare_runs(list(tested.values()))
    if len(tested) > 1:
        marked = [cell for cell in cells if cell.column in tested and cell.mark]
        found["single_tasks"] = {cell.column: cell.difference for cell in marked}
    return found | {
        "difference": test.value, "low": test.low, "high": test.high, "p": test.p, "test_seeds": test.seeds,
        "test": test,
    }  # fmt: skip


def count_seeds(pair: Arms) -> int:
    return min(len(arm.values) for arm in pair)


def _measure_isotropy(runs: pd.DataFrame) -> pd.DataFrame:
    """Average EV1 and IsoScore over a method's selected runs: a row for each task, the mean over its seeds."""
    usable = runs[runs["failure"].isna()]
    values = pd.DataFrame({name: read_numbers(usable, f"embedding/{name}") for name in ("ev1", "isoscore")})
    return values[np.isfinite(values)].groupby(usable["task"].to_numpy(), sort=False).mean().dropna(how="all")


def _average_isotropy(rows: Sequence[dict[str, Any]]) -> None:
    """Average each row's isotropy over tasks, the same ones in all rows, so that rows can be compared.

    These are the tasks on which all methods of the group were measured. If there is none, it is the one task on which
    most were, and rows without it have no isotropy.
    """
    measured = [row["isotropy"].index for row in rows if len(row["isotropy"])]
    counts = Counter(chain.from_iterable(measured))
    tasks = [task for task, count in counts.items() if count == len(measured)]
    tasks = tasks or [task for task, _ in counts.most_common(1)]
    for row in rows:
        row |= {"isotropy_tasks": tasks, **row["isotropy"].reindex(tasks).mean(skipna=False)}
