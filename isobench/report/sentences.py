"""Write, in sentences, what the runs support and what they can't. Published numbers have no part in it.

A ``row`` is a method's row of ``methods`` (`isobench.report.methods.METHODS`), a ``cell`` one of ``cells``.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pandas as pd

from isobench.common.terminal import format_count, name_some
from isobench.report.methods import list_score_cells
from isobench.report.tables import BASE_LABEL, BASE_METHOD, BASELINE, CONSTANT_PREDICTOR, label_method
from isobench.report.wording import describe_p, format_columns, format_interval, format_points
from isobench.statistics.seeds import ALPHA, ENOUGH_SEEDS, POWER, find_detectable_spreads

MAX_NAMED = 3  # how many methods or tasks a sentence names; the tables have all of them
SAME_DIFFERENCE = "the difference does not vary over seeds, so no test is possible"
TRAIN_LONGER = "Train longer (optimization.epochs=N, optimization.lr=N), or on more (task.train_samples=N)."
UNDEFINED_SCORE = "undefined score (NaN)"
UNFINISHED_STATES = ("running", "queued", "interrupted", "missing", "damaged")  # of runs that have no result yet


def describe_evidence(cells: pd.DataFrame, methods: pd.DataFrame) -> list[str]:
    """Write sentences with the numbers of all comparisons with plain fine-tuning."""
    return [
        *_describe_uncompared(methods),
        *_describe_methods(methods),
        *_describe_power(methods),
        *_describe_single_tasks(cells, methods),
        *_describe_repeated_columns(cells),
        *_describe_troubles(cells, methods),
    ]


def write_verdict(cells: pd.DataFrame, methods: pd.DataFrame, ended: int, total: int) -> str:
    """Write one or two sentences on how the methods compare with plain fine-tuning, from ``ended`` of ``total`` runs.

    ``is_shown`` of a method's row decides, and `isobench.statistics.seeds.compare_runs` says by which test. What no
    test can compare because runs predict one class is said too, because a collapse is a result.
    """
    if not ended:
        return "No run has ended yet."
    sentence = (
        _name_shown_effects(cells, methods)
        or _deny_effects(methods)
        or _name_untested(methods)
        or next(_describe_uncompared(methods), "The runs have nothing that can be compared.")
    )
    sentence = " ".join(filter(None, [sentence, _name_collapses(cells, methods)]))
    return sentence if ended == total else f"So far, with {ended:,} of {total:,} runs: {sentence}"


def name_method(methods: pd.DataFrame, row: Any) -> str:
    """Return the method's label, with its encoder and the part of the runs if there are several."""
    label = label_method(row.method)
    return f"{label} ({row.group})" if methods["group"].nunique() > 1 else label


def _list_others(methods: pd.DataFrame) -> list[Any]:
    return [row for row in methods.itertuples() if row.method != BASE_METHOD]


def _list_tested(methods: pd.DataFrame) -> list[Any]:
    return [row for row in _list_others(methods) if not math.isnan(row.p)]


def _describe_uncompared(methods: pd.DataFrame) -> Iterator[str]:
    others = _list_others(methods)
    if not others:
        yield "There are no runs." if methods.empty else "Only plain training was run: there is no method to test."
    bases = methods[methods["method"] == BASE_METHOD]
    scored_groups = {row.group for row in bases.itertuples() if max(row.seeds, default=0)}
    if alone := [row for row in others if row.group not in scored_groups]:
        names = " or ".join(name_method(methods, row) for row in alone)
        yield f"No run of {BASELINE} has a score to compare with, so whether {names} helps can't be said."
    for row in others:
        if row.group in scored_groups and not row.compared:
            name = name_method(methods, row)
            yield f"{name} can't be compared with {BASELINE}: on every task, one of the two has no usable score."


def _describe_single_tasks(cells: pd.DataFrame, methods: pd.DataFrame) -> Iterator[str]:
    """Count the differences on single tasks, where the methods are compared over several."""
    tested = list_comparisons(cells)
    if not any(len(row.compared) > 1 for row in _list_tested(methods)):
        return
    marked = [
        f"{name_method(methods, cell)} on {cell.column} ({format_points(cell.difference)} points)"
        for cell in tested[tested["mark"] != ""].itertuples()
    ]
    yield (
        f"On single tasks, with Holm's correction over these {format_count(len(tested), 'comparison')}: "
        f"{', '.join(marked) or 'no difference is larger than chance explains'}."
    )


def list_comparisons(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that have a p, each comparison once: Holm's family."""
    tested = cells[cells["p"].notna()]
    tested = tested.assign(key=tested["values"].map(tuple))
    return tested.drop_duplicates(["group", "method", "column", "key"]).drop(columns="key")


def _describe_methods(methods: pd.DataFrame) -> Iterator[str]:
    """Compare every method with plain fine-tuning over all its tasks; p is corrected for the number of methods."""
    tested = _list_tested(methods)
    for row in tested:
        verdict = "no difference shown"
        if row.is_shown:
            verdict = f"{'higher' if row.difference > 0 else 'lower'} than chance explains"
        test = f"t-test paired over {row.test_seeds} seeds" if row.test_seeds else "Welch's t-test, not paired"
        yield (
            f"{name_method(methods, row)} on {format_columns(row.compared)}: {verdict}. "
            f"{'Mean difference' if len(row.compared) > 1 else 'Difference'} "
            f"{format_interval(row.difference, row.low, row.high)} points, {test}: {describe_p(row.p)}"
            f"{f'; {adjusted}' if (adjusted := _describe_adjusted_p(methods, row)) != describe_p(row.p) else ''}."
        )
    for row in _list_others(methods):
        if math.isnan(row.p) and row.compared and not row.single_seeds:
            name, columns = name_method(methods, row), format_columns(row.compared)
            yield f"{name} on {columns}: {format_points(row.difference)} points; {SAME_DIFFERENCE}."
        if not row.single_seeds:
            continue
        mean = "mean " * (len(row.single_seeds) > 1)
        difference = format_points(statistics.fmean(row.single_seeds.values()))
        yield (
            f"{name_method(methods, row)} on {format_columns(list(row.single_seeds))}: it or {BASELINE} has a "
            f"single seed, so no test is possible; its {mean}difference of {difference} points may be chance."
        )


def _describe_adjusted_p(methods: pd.DataFrame, row: Any) -> str:
    """Write p after Holm, and what was done to it: for several methods, and for a choice among configurations."""
    count = len(_list_tested(methods))
    trials = f"times {row.trials:,} configurations" if row.trials > 1 else ""
    family = f"after Holm over {count} methods" if count > 1 else ""
    return " ".join([describe_p(row.p_holm), " and ".join(filter(None, [trials, family]))]).strip()


def _describe_power(methods: pd.DataFrame) -> Iterator[str]:
    """Say which differences these tests would usually miss."""
    tested = _list_tested(methods)
    if detectable := _describe_detectable(methods):
        level = f"{ALPHA} / {len(tested)} (Holm's first step)" if len(tested) > 1 else f"{ALPHA}"
        if any(row.trials > 1 for row in tested):
            level += ", divided by the configurations that a better method was selected from"
        yield (
            f"With as many seeds that vary as much, the smallest true difference that is found {POWER:.0%} of the "
            f"time is {detectable}, at the level {level}."
        )


def _describe_detectable(methods: pd.DataFrame, seeds: int | None = None) -> str:
    """Write the range of detectable differences: ``1.2 points (cosine) to 3.4 (flow)``; empty if there is none.

    ``seeds``: how many paired seeds there would be at the same spread, in place of those that there are.
    """
    tested = [row for row in _list_tested(methods) if not math.isnan(row.detectable)]
    found = {name_method(methods, row): row.detectable for row in tested}
    if seeds:
        for row in tested:
            ours, theirs = (find_detectable_spreads(n, len(tested) * row.trials) for n in (seeds, row.test_seeds))
            found[name_method(methods, row)] *= ours / theirs
    if not found:
        return ""
    low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    least, most = (f"{found[name]:#.2g}".rstrip(".") for name in (low, high))
    return f"{least} points" if least == most else f"{least} points ({low}) to {most} ({high})"


def _describe_repeated_columns(cells: pd.DataFrame) -> Iterator[str]:
    compared = cells[cells["compared"]]
    first_columns: dict[str, str] = {}  # by task
    for column, task in compared[["column", "task"]].drop_duplicates().to_numpy():
        earlier = first_columns.setdefault(task, column)
        if earlier != column:
            yield f"{column} shows the runs of {earlier} again: across tasks only {earlier} counts."


def _describe_troubles(cells: pd.DataFrame, methods: pd.DataFrame) -> Iterator[str]:
    """Say what went wrong in runs, plain fine-tuning's too, and that no mean includes them."""
    found: dict[tuple[str, str], list[str]] = {}  # method, sentence -> the runs that it is about, by column
    for cell in list_score_cells(cells).itertuples():
        counts = Counter(cell.troubles)
        counts[UNDEFINED_SCORE] = sum(map(math.isnan, cell.values)) - counts[CONSTANT_PREDICTOR]
        for trouble, count in counts.items():
            if count > 0:
                is_said = trouble in (CONSTANT_PREDICTOR, UNDEFINED_SCORE)  # by the sentence itself
                runs = f"{count} on {cell.column}" if is_said else f"{count} {trouble} on {cell.column}"
                found.setdefault((name_method(methods, cell), _describe_consequence(trouble)), []).append(runs)
    for (method, sentence), runs_by_column in found.items():
        yield f"{method}: {sentence.format(', '.join(runs_by_column))}."


def _describe_consequence(trouble: str) -> str:
    """Say what follows from a trouble; ``{}`` in the sentence stands for the runs that had it."""
    if trouble == CONSTANT_PREDICTOR:
        return "constant predictors ({}): no mean includes these tasks, though the collapse is a result"
    if trouble == UNDEFINED_SCORE:
        return "undefined scores, NaN ({}): no mean includes these tasks"
    if trouble in UNFINISHED_STATES:
        return "runs without a result ({}): no mean includes them, and means may change when they end"
    return "failed runs ({}): they have no score, and means are of the other runs only"


def _name_shown_effects(cells: pd.DataFrame, methods: pd.DataFrame) -> str:
    """Name the methods whose difference is larger than chance explains; empty if there is none."""
    tested = _list_tested(methods)
    shown = sorted((row for row in tested if row.is_shown), key=lambda row: -row.difference)
    if not shown:
        return ""
    clauses = [_describe_effect(cells, methods, row) for row in shown[:MAX_NAMED]]
    if len(shown) > MAX_NAMED:
        clauses.append(f"{len(shown) - MAX_NAMED} more differ too")
    others = len(tested) - len(shown)
    if others == 1:
        clauses.append("the other method shows no difference")
    elif others:
        clauses.append(f"the other {others} methods show none")
    return f"{'; '.join(clauses)}."


def _describe_effect(cells: pd.DataFrame, methods: pd.DataFrame, row: Any) -> str:
    verb, side = ("gains", "over") if row.difference > 0 else ("loses", "against")
    mean = f", mean of {len(row.compared)} tasks" if len(row.compared) > 1 else ""
    return (
        f"{name_method(methods, row)} {verb} {abs(row.difference):.2f} points {side} {BASE_LABEL}{mean} "
        f"({_describe_numbers(methods, row)}){_warn_of_failures(cells, row)}"
    )


def _describe_numbers(methods: pd.DataFrame, row: Any) -> str:
    return f"95% interval {row.low:.2f} to {row.high:.2f}, {_describe_adjusted_p(methods, row)}"


def _warn_of_failures(cells: pd.DataFrame, row: Any) -> str:
    """Say how many runs of both methods failed; `_name_collapses` is about constant predictors."""
    scores = list_score_cells(cells)
    both = scores[(scores["group"] == row.group) & scores["method"].isin([row.method, BASE_METHOD])]
    both = both[both["values"].map(bool) | both["troubles"].map(bool)]
    tasks = set(both[both["method"] == row.method]["task"])  # on which the method was run
    troubles = chain.from_iterable(both[both["task"].isin(tasks)]["troubles"])
    failed = sum(trouble not in (*UNFINISHED_STATES, CONSTANT_PREDICTOR) for trouble in troubles)
    return f", without {format_count(failed, 'run')} that failed" if failed else ""


def _deny_effects(methods: pd.DataFrame) -> str:
    """Say that no method differs by more than chance, and which difference would be found; empty without tests."""
    tested = _list_tested(methods)
    if not tested:
        return ""
    detectable = _describe_detectable(methods)
    power = f"A true difference of {detectable} would be found {POWER:.0%} of the time" if detectable else ""
    if power and 1 < min(row.test_seeds for row in tested) < ENOUGH_SEEDS:
        power += f"; with {ENOUGH_SEEDS} seeds, one of {_describe_detectable(methods, ENOUGH_SEEDS)}"
    power = f" ({power}.)" if power else ""
    closest = min(tested, key=lambda row: row.p_holm)
    if len(tested) == 1:
        details = _describe_numbers(methods, closest)
        points = format_points(closest.difference)
        subject = (
            f"{name_method(methods, closest)} does not differ from {BASE_LABEL} by more than chance: {points} points"
        )
    else:
        details = f"smallest {_describe_adjusted_p(methods, closest)}"
        subject = f"No method differs from {BASE_LABEL} by more than chance"
    if max(row.candidates for row in tested) > 1:
        subject += " in the configuration that was selected for it"
    found = [
        f"{name_method(methods, row)} on {column} ({format_points(difference)} points)"
        for row in tested
        for column, difference in row.single_tasks.items()
    ]
    tasks = f" On single tasks {name_some(found, limit=MAX_NAMED)} differ{'s' * (len(found) == 1)}." if found else ""
    return f"{subject} ({details}).{power}{tasks}"


def _name_collapses(cells: pd.DataFrame, methods: pd.DataFrame) -> str:
    """Name the methods of which runs predict one class, with the number of these runs; empty if there is none."""
    found = []
    can_compare = False
    for cell in list_score_cells(cells).itertuples():
        count = cell.troubles.count(CONSTANT_PREDICTOR)
        can_compare |= count < len(cell.values)
        if count:
            runs = f"{count} of {len(cell.seeds) or count} runs on {cell.column}"
            found.append(f"{name_method(methods, cell)} ({runs})")
    if found and not can_compare:
        return f"All runs predict one class. {TRAIN_LONGER}"
    advice = "" if any(row.compared for row in _list_others(methods)) else f" {TRAIN_LONGER}"
    return f"Left out, because runs predict one class: {name_some(found, limit=MAX_NAMED)}.{advice}" if found else ""


def _name_untested(methods: pd.DataFrame) -> str:
    """Give the differences of which no test is possible: of single seeds, or the same in every seed."""
    found = [row for row in _list_others(methods) if math.isnan(row.p) and row.compared]
    if not found:
        return ""
    is_single = all(row.single_seeds for row in found)
    why = f"a single seed allows no test, {ENOUGH_SEEDS} do" if is_single else SAME_DIFFERENCE
    if len(found) == 1:
        (row,) = found
        side = "below" if row.difference < 0 else "above"
        points = f"{abs(row.difference):.2f} points {side} {BASE_LABEL}"
        return f"{name_method(methods, row)} is {points}, which may be chance: {why}."
    differences = [row.difference for row in found]
    seen = " to ".join(dict.fromkeys(map(format_points, (min(differences), max(differences)))))
    return f"The {len(found)} methods' differences from {BASE_LABEL} ({seen} points) may be chance: {why}."
