"""Write the verdict: one or two sentences on how the methods compare with plain fine-tuning, and what is left out.

Published numbers have no part in it. A ``row`` is a method's row of ``methods`` (`isobench.report.methods.METHODS`).
"""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from isobench.common.terminal import name_some
from isobench.report.methods import list_score_cells, name_method
from isobench.report.tables import BASE_LABEL, BASE_METHOD, BASELINE, CONSTANT_PREDICTOR
from isobench.report.wording import describe_p, format_points
from isobench.statistics.seeds import ENOUGH_SEEDS, POWER

MAX_NAMED = 3  # how many methods or tasks a sentence names; the tables have all of them
SAME_DIFFERENCE = "the difference does not vary over seeds, so no test is possible"
TRAIN_LONGER = "Train longer (optimization.epochs=N, optimization.lr=N), or on more (task.train_samples=N)."


def write_verdict(cells: pd.DataFrame, methods: pd.DataFrame, ended: int, total: int) -> str:
    """Write one or two sentences on how the methods compare with plain fine-tuning, from ``ended`` of ``total`` runs.

    ``is_shown`` of a method's row decides, and `isobench.statistics.seeds.compare_runs` says by which test. What no
    test can compare because runs predict one class is said too, because a collapse is a result.
    """
    if not ended:
        return "No run has ended yet."
    compared = [row for row in methods.itertuples() if row.method != BASE_METHOD and row.compared]
    tested = [row for row in compared if not math.isnan(row.p)]
    if any(row.is_shown for row in tested):
        sentence = _name_effects(methods, tested)
    elif tested:
        sentence = _deny_effects(methods, tested)
    elif compared:
        sentence = _name_untested(methods, compared)
    else:
        sentence = f"No method has a score that can be compared with one of {BASELINE}."
    collapses = _name_collapses(cells, methods)
    advice = "" if compared or not collapses else TRAIN_LONGER
    so_far = f"So far, with {ended:,} of {total:,} runs:" if ended < total else ""
    return " ".join(filter(None, [so_far, sentence, collapses, advice]))


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


def _deny_effects(methods: pd.DataFrame, tested: Sequence[Any]) -> str:
    """Say that no method differs by more than chance, and how large a difference the tests would find."""
    closest = min(tested, key=lambda row: row.p_holm)
    if len(tested) == 1:
        points = f"{format_points(closest.difference)} points ({_describe_numbers(closest, 1)})"
        text = f"{name_method(methods, closest)} does not differ from {BASE_LABEL} by more than chance: {points}."
    else:
        smallest = _describe_p(closest, len(tested))
        text = f"No method differs from {BASE_LABEL} by more than chance (smallest {smallest})."
    if found := [row.detectable for row in tested if not math.isnan(row.detectable)]:
        sizes = " to ".join(dict.fromkeys(f"{size:#.2g}".rstrip(".") for size in (min(found), max(found))))
        text += f" A true difference of {sizes} points would be found {POWER:.0%} of the time."
    return text


def _name_untested(methods: pd.DataFrame, compared: Sequence[Any]) -> str:
    """Give the differences of which no test is possible: of single seeds, or the same in every seed."""
    is_single = all(row.is_single for row in compared)
    why = f"a single seed allows no test, {ENOUGH_SEEDS} do" if is_single else SAME_DIFFERENCE
    names = []
    for row in compared:
        side = "below" if row.difference < 0 else "above"
        names.append(f"{name_method(methods, row)} is {abs(row.difference):.2f} points {side} {BASE_LABEL}")
    return f"{name_some(names, limit=MAX_NAMED)}, which may be chance: {why}."


def _name_collapses(cells: pd.DataFrame, methods: pd.DataFrame) -> str:
    """Name the methods of which runs predict one class, with the number of these runs; empty if there is none."""
    found = []
    for cell in list_score_cells(cells).itertuples():
        if count := cell.troubles.count(CONSTANT_PREDICTOR):
            runs = f"{count} of {len(cell.seeds) or count} runs on {cell.column}"
            found.append(f"{name_method(methods, cell)} ({runs})")
    return f"Left out, because runs predict one class: {name_some(found, limit=MAX_NAMED)}." if found else ""
