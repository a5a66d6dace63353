"""Write the verdict: one or two sentences on how the methods compare with plain fine-tuning, and what is left out.

Published numbers have no part in it. A ``row`` is a method's row of ``methods`` (`isobench.report.methods.METHODS`).
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pandas as pd

from isobench.common.terminal import format_count, name_some
from isobench.report.methods import list_score_cells, list_tested, name_method
from isobench.report.tables import BASE_LABEL, BASE_METHOD, BASELINE, CONSTANT_PREDICTOR
from isobench.report.wording import describe_p, format_points
from isobench.statistics.seeds import ENOUGH_SEEDS, POWER, find_detectable_spreads

MAX_NAMED = 3  # how many methods or tasks a sentence names; the tables have all of them
SAME_DIFFERENCE = "the difference does not vary over seeds, so no test is possible"
TRAIN_LONGER = "Train longer (optimization.epochs=N, optimization.lr=N), or on more (task.train_samples=N)."
UNFINISHED_STATES = ("running", "queued", "interrupted", "missing", "damaged")  # of runs that have no result yet


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


def _list_others(methods: pd.DataFrame) -> list[Any]:
    return [row for row in methods.itertuples() if row.method != BASE_METHOD]


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


def _describe_adjusted_p(methods: pd.DataFrame, row: Any) -> str:
    """Write p after Holm, and what was done to it: for several methods, and for a choice among configurations."""
    count = len(list_tested(methods))
    trials = f"times {row.trials:,} configurations" if row.trials > 1 else ""
    family = f"after Holm over {count} methods" if count > 1 else ""
    return " ".join([describe_p(row.p_holm), " and ".join(filter(None, [trials, family]))]).strip()


def _describe_detectable(methods: pd.DataFrame, seeds: int | None = None) -> str:
    """Write the range of detectable differences: ``1.2 points (cosine) to 3.4 (flow)``; empty if there is none.

    ``seeds``: how many paired seeds there would be at the same spread, in place of those that there are.
    """
    tested = [row for row in list_tested(methods) if not math.isnan(row.detectable)]
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


def _name_shown_effects(cells: pd.DataFrame, methods: pd.DataFrame) -> str:
    """Name the methods whose difference is larger than chance explains; empty if there is none."""
    tested = list_tested(methods)
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
        f"({_describe_numbers(methods, row)}){_describe_failures(cells, row)}"
    )


def _describe_numbers(methods: pd.DataFrame, row: Any) -> str:
    return f"95% interval {row.low:.2f} to {row.high:.2f}, {_describe_adjusted_p(methods, row)}"


def _describe_failures(cells: pd.DataFrame, row: Any) -> str:
    """Write a clause on how many runs of both methods failed; empty if none did. Constant predictors don't count."""
    scores = list_score_cells(cells)
    both = scores[(scores["group"] == row.group) & scores["method"].isin([row.method, BASE_METHOD])]
    both = both[both["values"].map(bool) | both["troubles"].map(bool)]  # cells that have runs
    tasks = set(both[both["method"] == row.method]["task"])  # on which the method was run
    troubles = chain.from_iterable(both[both["task"].isin(tasks)]["troubles"])
    failed = sum(trouble not in (*UNFINISHED_STATES, CONSTANT_PREDICTOR) for trouble in troubles)
    return f", without {format_count(failed, 'run')} that failed" if failed else ""


def _deny_effects(methods: pd.DataFrame) -> str:
    """Say that no method differs by more than chance, and which difference would be found; empty without tests."""
    tested = list_tested(methods)
    if not tested:
        return ""
    detectable = _describe_detectable(methods)
    power = f"A true difference of {detectable} would be found {POWER:.0%} of the time" if detectable else ""
    if power and 1 < min(row.test_seeds for row in tested) < ENOUGH_SEEDS:
        power += f"; with {ENOUGH_SEEDS} seeds, one of {_describe_detectable(methods, ENOUGH_SEEDS)}"
    power = f" {power}." if power else ""
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
