"""Compare each method with plain fine-tuning over all its tasks: a row for each method, and the verdict in words.

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

from isobench.common.terminal import name_some
from isobench.report.tables import (
    BASE_LABEL,
    BASE_METHOD,
    BASELINE,
    CONSTANT_PREDICTOR,
    label_method,
    name_group,
    read_numbers,
)
from isobench.report.wording import DASH, describe_p, format_interval, format_p_value, format_points, format_size
from isobench.statistics.seeds import (
    ALPHA,
    ENOUGH_SEEDS,
    MAX_TRIALS,
    POWER,
    Arm,
    Arms,
    compare_runs,
    compute_sd,
    count_trials,
    holm,
)

MAX_NAMED = 3  # how many methods or tasks a sentence names; the tables have all of them
MAX_LISTED = 5  # how many it names by a number alone
TRAIN_LONGER = (
    "Train longer (optimization.epochs=N optimization.patience=null), on more examples (task.train_samples=N), or at "
    "another learning rate (optimization.lr=N)."
)
# Columns of ``compare_methods``. Where nothing is said they are as in ``cells``, here over the columns ``compared``.
METHODS = (
    "group", "method", "settings", "time", "troubles",
    "candidates",  # configurations from which it was selected by the scores that are shown
    "columns", "score", "sd",  # the columns of scores, one a task; the mean over them; over seeds in the only column
    "compared", "difference", "low", "high", "p", "test_seeds", "trials",
    "is_single",  # whether it or plain fine-tuning has a single seed in each of the columns ``compared``
    "p_holm", "is_shown",  # after Holm's correction over the methods of all groups; whether that is below .05
    "printed", "printed_of",  # the paper's difference, mean over the columns ``compared``, and its encoder
    "detectable",  # smallest true difference that this test usually finds, at the first step of Holm's correction
    "constant_tasks",  # those on which a run of it or of plain fine-tuning is a constant predictor
    "ev1", "isoscore", "isotropy_tasks",  # of the calibrated embeddings; over these tasks, the same in a group
)  # fmt: skip


def compare_methods(cells: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Build a row for each group and method of ``cells``, plain fine-tuning too; the columns are those of METHODS."""
    chosen = runs[runs["selected"]]
    names = [name_group(*names) for names in zip(chosen["encoder"], chosen["part"], strict=True)]
    rows: list[dict[str, Any]] = []
    for group, of_group in list_score_cells(cells).groupby("group", sort=False):
        methods = {name: list(own.itertuples()) for name, own in of_group.groupby("method", sort=False)}
        columns = _choose_columns(list(of_group["column"].unique()), list(methods.values()))
        base = {cell.column: cell for cell in methods.get(BASE_METHOD, [])}
        of_runs = chosen[[name == group for name in names]]
        isotropy_tasks, isotropy = _average_isotropy(of_runs)
        candidates = of_runs.groupby(["method", "task"])["candidates"].max()
        for method, own in methods.items():
            budgets = {  # column -> from how many configurations the method and plain fine-tuning were selected
                cell.column: [int(candidates.get((name, cell.task), 1)) for name in (method, BASE_METHOD)]
                for cell in own
            }
            row = {
                "group": group, "method": method, "settings": own[0].settings, "time": own[0].time,
                "columns": columns, "troubles": list(chain.from_iterable(cell.troubles for cell in own)),
                "candidates": max(ours for ours, _ in budgets.values()),
                "constant_tasks": [cell.task for cell in own if _is_constant(cell, base.get(cell.column, cell))],
                "isotropy_tasks": isotropy_tasks, **isotropy.get(method, {}),
                **_average_scores(own, columns), **_compare_over_tasks(own),
            }  # fmt: skip
            pairs = (budgets[column] for column in row["compared"])
            trials = [count_trials(ours, theirs, row["difference"]) for ours, theirs in pairs]
            rows.append(row | {"trials": min(math.prod(trials), MAX_TRIALS)})
    tested = [row for row in rows if not math.isnan(row["p"])]
    for row in tested:
        row["detectable"] = row["test"].find_detectable(len(tested) * row["trials"])
    for row, p in zip(rows, holm([row["p"] * row["trials"] for row in rows]), strict=True):
        row["p_holm"], row["is_shown"] = p, p < ALPHA
    table = pd.DataFrame(rows, columns=METHODS)
    return table.astype(dict.fromkeys(("detectable", "ev1", "isoscore"), float))


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


def tabulate_comparisons(methods: pd.DataFrame) -> pd.DataFrame:
    """Lay out every comparison with plain fine-tuning as texts, a row for each method; empty without any.

    ``found at 80%``: the smallest true difference that such a test finds 80% of the time. Without two seeds, or where
    the difference is the same in all seeds, no test is possible: dashes.
    """
    lines = []
    for row in methods.itertuples():
        if row.method != BASE_METHOD and row.compared:
            lines.append({
                "method": name_method(methods, row),
                "tasks": ", ".join(row.compared) if len(row.compared) <= 3 else f"{len(row.compared)} tasks",
                "difference": format_interval(row.difference, row.low, row.high),
                "in print": DASH if math.isnan(row.printed) else f"{format_points(row.printed)} ({row.printed_of})",
                "p": format_p_value(row.p),
                "p after Holm": format_p_value(row.p_holm),
                "seeds": f"{row.test_seeds} paired" if row.test_seeds else DASH if math.isnan(row.p) else "unpaired",
                f"found at {POWER:.0%}": DASH if math.isnan(row.detectable) else format_size(row.detectable),
            })  # fmt: skip
    table = pd.DataFrame(lines)
    has_print = methods["printed"].notna().any()
    return table if has_print else table.drop(columns="in print", errors="ignore")


def _is_usable(cell: Any) -> bool:
    """Return True if a cell's values may be averaged: it has some, no run is a constant predictor, none is NaN."""
    return bool(cell.values) and CONSTANT_PREDICTOR not in cell.troubles and not any(map(math.isnan, cell.values))


def _is_constant(cell: Any, base: Any) -> bool:
    """Return True if a cell has runs, and one of them or of plain fine-tuning's is a constant predictor."""
    return bool(cell.values or cell.troubles) and CONSTANT_PREDICTOR in (*cell.troubles, *base.troubles)


def list_arms(cells: Iterable[Any]) -> dict[str, Arms]:
    """List the scores of a method and of plain fine-tuning in the columns in which both may be averaged."""
    return {
        cell.column: (Arm(cell.values, cell.seeds), Arm(cell.base, cell.base_seeds))
        for cell in cells
        if cell.compared and _is_usable(cell) and not any(map(math.isnan, cell.base))
    }


def _choose_columns(columns: list[str], methods: Sequence[Sequence[Any]]) -> list[str]:
    """Choose the columns in which all methods that have a usable score have one; else the one that most have."""
    usable = [{cell.column for cell in of_method if _is_usable(cell)} for of_method in methods]
    usable = [own for own in usable if own]
    shared = [column for column in columns if all(column in own for own in usable)]
    return shared or [max(columns, key=lambda column: sum(column in own for own in usable))]


def _average_scores(cells: Sequence[Any], columns: list[str]) -> dict[str, float]:
    """Average a method's scores over the columns: over several if it has usable ones in all of them."""
    shown = [cell for cell in cells if cell.column in columns and cell.values]
    if len(columns) == 1:
        values = shown[0].values if shown else []
        return {"score": statistics.fmean(values) if values else math.nan, "sd": compute_sd(values)}
    is_whole = len(shown) == len(columns) and all(map(_is_usable, shown))
    means = [statistics.fmean(cell.values) for cell in shown]
    return {"score": statistics.fmean(means) if is_whole else math.nan, "sd": math.nan}


def _compare_over_tasks(cells: Sequence[Any]) -> dict[str, Any]:
    """Compare a method with plain fine-tuning over the tasks on which both have two seeds, else on single seeds."""
    arms = list_arms(cells)
    tested = {column: pair for column, pair in arms.items() if count_seeds(pair) > 1}
    compared = list(tested or arms)
    shown = [cell for cell in cells if cell.column in compared]
    of_one_encoder = len({cell.published_of for cell in shown}) == 1
    found: dict[str, Any] = {
        "compared": compared, "is_single": bool(arms) and not tested,
        "printed": statistics.fmean(cell.published_difference for cell in shown) if of_one_encoder else math.nan,
        "printed_of": shown[0].published_of if of_one_encoder else None,
    }  # fmt: skip
    if not tested:
        differences = [compare_runs([pair]).value for pair in arms.values()]
        difference = statistics.fmean(differences) if arms else math.nan
        return found | {"difference": difference, "p": math.nan, "test_seeds": 0}
    test = compare_runs(list(tested.values()))
    return found | {
        "difference": test.value, "low": test.low, "high": test.high, "p": test.p, "test_seeds": test.seeds,
        "test": test,  # no column: it finds ``detectable``, which depends on how many methods are tested
    }  # fmt: skip


def count_seeds(pair: Arms) -> int:
    return min(len(arm.values) for arm in pair)


def _average_isotropy(runs: pd.DataFrame) -> tuple[list[str], dict[str, dict[str, float]]]:
    """Average EV1 and IsoScore of each method over seeds and tasks, the same tasks in all methods.

    These are the tasks on which all methods of the group were measured. If there is none, it is the one task on which
    most were, and methods without it have no isotropy.
    """
    usable = runs[runs["failure"].isna()]
    values = pd.DataFrame({name: read_numbers(usable, f"embedding/{name}") for name in ("ev1", "isoscore")})
    keys = [usable[name].to_numpy() for name in ("method", "task")]
    means = values[np.isfinite(values)].groupby(keys, sort=False).mean().dropna(how="all")  # a row a method and task
    of_methods = {method: own.droplevel(0) for method, own in means.groupby(level=0, sort=False)}
    counts = means.groupby(level=1, sort=False).size()  # task -> number of methods
    tasks = list(counts.index[counts == len(of_methods)]) or ([counts.idxmax()] if len(counts) else [])
    return tasks, {method: dict(own.reindex(tasks).mean(skipna=False)) for method, own in of_methods.items()}


def write_verdict(
    cells: pd.DataFrame, methods: pd.DataFrame, ended: int, total: int, unlearned: Sequence[str]
) -> str:
    """Write one or two sentences on how the methods compare with plain fine-tuning, from ``ended`` of ``total`` runs.

    ``is_shown`` of a method's row decides, and `isobench.statistics.seeds.compare_runs` says by which test. What no
    test can compare because runs predict one class is said too, because a collapse is a result. ``unlearned``: the
    tasks on which no method's mean is above the largest class alone.
    """
    if not ended:
        return "No run has ended yet."
    compared = [row for row in methods.itertuples() if row.method != BASE_METHOD and row.compared]
    tested = [row for row in compared if not math.isnan(row.p)]
    untested = _name_untested(methods, [row for row in compared if math.isnan(row.p)])
    collapses = _name_collapses(cells, methods)
    if any(row.is_shown for row in tested):
        sentence = _name_effects(methods, tested)
    elif tested:
        sentence = _deny_effects(methods, tested, "No method that can be compared" if collapses else "No method")
    elif compared:
        sentence = ""
    elif (methods["method"] == BASE_METHOD).all():
        sentence = "Only plain training was run: there is no method to test."
    elif (methods["method"] != BASE_METHOD).all():
        sentence = f"There is no run of {BASELINE} to compare with: -m calibration={BASE_METHOD},METHOD trains both."
    else:
        sentence = f"No method has a score that can be compared with one of {BASELINE}."
    below = f"No mean is above that of the largest class alone on {name_some(unlearned, limit=MAX_NAMED)}."
    is_unlearned = len(unlearned) == list_score_cells(cells)["task"].nunique() > 0
    advice = TRAIN_LONGER if is_unlearned or (collapses and not compared) else ""
    so_far = f"So far, with {ended:,} of {total:,} runs:" if ended < total else ""
    return " ".join(filter(None, [so_far, sentence, untested, collapses, below if unlearned else "", advice]))


def _describe_p(row: Any, count: int) -> str:
    """Write p after Holm over ``count`` methods, and by how many configurations it was multiplied."""
    factors = [f"times {row.trials:,} configurations"] if row.trials > 1 else []
    factors += [f"after Holm over {count} methods"] if count > 1 else []
    return f"{describe_p(row.p_holm)} {' and '.join(factors)}".rstrip()


def _describe_numbers(row: Any, count: int) -> str:
    return f"95% interval {row.low:.2f} to {row.high:.2f}, {_describe_p(row, count)}"


def _name_effects(methods: pd.DataFrame, tested: Sequence[Any]) -> str:
    """Name the methods whose difference is larger than chance explains, gains first."""
    shown = sorted((row for row in tested if row.is_shown), key=lambda row: -row.difference)
    clauses = []
    for row in shown[:MAX_NAMED]:
        verb, side = ("gains", "over") if row.difference > 0 else ("loses", "against")
        mean = f", mean of {len(row.compared)} tasks" if len(row.compared) > 1 else ""
        points = f"{abs(row.difference):.2f} points {side} {BASE_LABEL}{mean}"
        clauses.append(f"{name_method(methods, row)} {verb} {points} ({_describe_numbers(row, len(tested))})")
    if len(shown) > MAX_NAMED:
        clauses.append(f"{len(shown) - MAX_NAMED} more differ too")
    others = len(tested) - len(shown)
    if others:
        clauses.append("the other method shows no difference" if others == 1 else f"the other {others} show none")
    return f"{'; '.join(clauses)}."


def _deny_effects(methods: pd.DataFrame, tested: Sequence[Any], none: str) -> str:
    """Say that no method differs by more than chance, and by how much each does."""
    if len(tested) == 1:
        (row,) = tested
        points = f"{format_points(row.difference)} points ({_describe_numbers(row, 1)})"
        return f"{name_method(methods, row)} does not differ from {BASE_LABEL} by more than chance: {points}."
    smallest = _describe_p(min(tested, key=lambda row: row.p_holm), len(tested))
    columns, *others = {tuple(row.compared) for row in tested}
    names = []
    for row in tested:
        tasks = f" on {'/'.join(row.compared)}" if others else ""
        names.append(f"{name_method(methods, row)} {format_interval(row.difference, row.low, row.high)}{tasks}")
    where = "" if others else f", mean of {len(columns)} tasks" if len(columns) > 1 else f" on {columns[0]}"
    points = f"in points: {name_some(names, limit=MAX_LISTED)}{where}"
    return f"{none} differs from {BASE_LABEL} by more than chance (smallest {smallest}), {points}."


def _name_untested(methods: pd.DataFrame, compared: Sequence[Any]) -> str:
    """Give the differences of which no test is possible: of single seeds, or the same in every seed; "" for none."""
    why = "the difference does not vary over seeds, so no test is possible"
    if all(row.is_single for row in compared):
        why = f"a single seed allows no test, {ENOUGH_SEEDS} do"
    names = []
    for row in compared:
        side = {"0.00": "from"}.get(format_points(row.difference), "below" if row.difference < 0 else "above")
        names.append(f"{name_method(methods, row)} is {abs(row.difference):.2f} points {side} {BASE_LABEL}")
    return f"{name_some(names, limit=MAX_NAMED)}, which may be chance: {why}." if names else ""


def _name_collapses(cells: pd.DataFrame, methods: pd.DataFrame) -> str:
    """Name the methods of which runs predict one class, with the number of these runs; empty if there is none."""
    found: dict[str, list[tuple[str, int, int]]] = {}  # method -> its columns with such runs, their number, all runs
    for cell in list_score_cells(cells).itertuples():
        if count := cell.troubles.count(CONSTANT_PREDICTOR):
            runs = cell.column, count, len(cell.seeds) or count
            found.setdefault(name_method(methods, cell), []).append(runs)
    names = []
    for method, own in found.items():
        columns, counts, totals = zip(*own, strict=True)
        names.append(f"{method} ({sum(counts)} of {sum(totals)} runs on {', '.join(columns)})")
    why = "Left out, because runs give all examples one answer"
    return f"{why}: {name_some(names, limit=MAX_NAMED)}." if names else ""
