"""Judge the statements of the second registration (second_registration.md) by the rules that it fixed."""

import math
from collections.abc import Iterable, Sequence

from isobench.analyses.rows import TidyRow, group_rows, select_rows
from isobench.statistics.dose_response import narrow_interval
from isobench.statistics.seeds import ALPHA
from isobench_papers.isotropy_dial.rows import (
    DIAL,
    GIVEN_DIAL,
    MEASURES,
    MORE_ISOTROPIC,
    PLAIN,
    TURNED,
    WHOLE,
    is_primary,
)

MARGIN = 1.0  # points: a contrast or slope within it counts as no difference
SMALL_CORRELATION = 0.1
FAMILY_A, FAMILY_B = (12, 18), (4, 0)  # the numbers of slopes and of correlations that Holm's correction is over
TASK = "stsb"  # of part A
SUPPORTED, REFUTED, OPEN, NOT_ANSWERABLE = "supported", "refuted", "can't tell", "not answerable"


def judge_statements(
    slopes: Sequence[TidyRow],
    correlations: Sequence[TidyRow],
    contrasts: Sequence[TidyRow],
    left_out: Sequence[TidyRow],
) -> list[TidyRow]:
    """Judge each statement for each encoder and task, once the registered families of tests are complete."""
    family = tuple(sum(row["complete"] and is_primary(row) for row in rows) for rows in (slopes, correlations))
    verdicts: list[TidyRow] = []
    for (encoder, task), own in group_rows(contrasts, "encoder", "task").items():
        names = {"encoder": encoder, "task": task}
        lines, ranks, repeated = (select_rows(rows, names) for rows in (slopes, correlations, left_out))
        judged: dict[str, tuple[str, str]] = {}
        if family == FAMILY_A and task == TASK:
            judged = judge_replication(lines, ranks, own, repeated)
        if family == FAMILY_B and any(row["dial"] == "norm_effect" for row in own):
            judged = judge_norm(lines, own, repeated)
        verdicts += [
            {**names, "statement": statement, "verdict": verdict, "because": because}
            for statement, (verdict, because) in judged.items()
        ]
    return verdicts


def judge_replication(
    slopes: Sequence[TidyRow],
    correlations: Sequence[TidyRow],
    contrasts: Sequence[TidyRow],
    left_out: Sequence[TidyRow],
) -> dict[str, tuple[str, str]]:
    """Judge the statements of part A."""
    (full,) = select_rows(contrasts, {"dial": "whitening", "dose": 0})
    judged = {
        "more isotropy helps (IsoBN's authors)": judge_slope("isobn", 1, slopes, left_out),
        "calibration does not help (Ding et al.)": judge_calibration(contrasts),
        "less isotropy helps (I-STAR's authors)": judge_slope("istar", -1, slopes, left_out),
        "full whitening costs": (
            choose(is_different(full, -1), is_different(full, 1) or is_equivalent(full)), write_contrast(full),
        ),
    }  # fmt: skip
    for row in select_rows(correlations, {"kind": GIVEN_DIAL}):
        cell = find_decisive_cell(row, "correlation", "measure", left_out)
        verdict = judge_sign(
            row, "correlation", MORE_ISOTROPIC[row["measure"]], is_within(row, "correlation", SMALL_CORRELATION), cell
        )
        because = f"{row['correlation']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}], p = {row['p_holm']:.4f}{cell}"
        judged[f"the score follows {MEASURES[row['measure']]}"] = verdict, because
    return judged


def judge_norm(
    slopes: Sequence[TidyRow], contrasts: Sequence[TidyRow], left_out: Sequence[TidyRow]
) -> dict[str, tuple[str, str]]:
    """Judge the statements of part B."""
    (full,) = select_rows(contrasts, {"dial": "whitening_norm", "dose": 0, "against": PLAIN})
    (effect,) = select_rows(slopes, {"dial": "norm_effect", "quantity": "score", "doses": WHOLE})
    cell = find_decisive_cell(effect, "slope", "dial", left_out)
    is_smaller = is_found(effect) and effect["slope"] < 0 and not cell
    costs, is_free = is_different(full, -1), is_equivalent(full)
    because = f"{write_contrast(full)}; {write_slope(effect)}{cell}"
    judged = {
        "whitening costs because of the norm alone": (choose(is_smaller and is_free, costs), because),
        "whitening costs because of the directions": (choose(costs, is_free or is_different(full, 1)), because),
        "the norm is a part of the cost": (
            judge_sign(effect, "slope", -1, is_within(effect, "over_dial", MARGIN), cell), because,
        ),
    }  # fmt: skip
    if not turns_isotropy("whitening_norm", slopes):
        return dict.fromkeys(judged, (NOT_ANSWERABLE, "the dose changes neither EV1 nor IsoScore"))
    return judged


def judge_slope(dial: str, sign: int, slopes: Sequence[TidyRow], left_out: Sequence[TidyRow]) -> tuple[str, str]:
    """Judge whether the slope of the score in a dial's dose has a sign, if the dial turns isotropy."""
    (row,) = select_rows(slopes, {"dial": dial, "doses": WHOLE, "quantity": "score"})
    if not turns_isotropy(dial, slopes):
        return NOT_ANSWERABLE, f"the dose changes neither EV1 nor IsoScore; {write_slope(row)}"
    cell = find_decisive_cell(row, "slope", "dial", left_out)
    return judge_sign(row, "slope", sign, is_within(row, "over_dial", MARGIN), cell), write_slope(row) + cell


def judge_sign(row: TidyRow, name: str, sign: int, is_small: bool, cell: str) -> str:
    """Judge the sign of a slope or correlation, in column ``name``; one that rests on a cell judges nothing."""
    if cell:
        return OPEN
    is_so, is_opposite = (is_found(row) and row[name] * way > 0 for way in (sign, -sign))
    return choose(is_so, is_opposite or is_small)


def turns_isotropy(dial: str, slopes: Sequence[TidyRow]) -> bool:
    """Return True if EV1 or IsoScore follows a dial's dose (the registered check)."""
    own = select_rows(slopes, {"dial": dial, "doses": WHOLE})
    return any(row["p"] < ALPHA for row in own if row["quantity"] in TURNED)


def judge_calibration(contrasts: Sequence[TidyRow]) -> tuple[str, str]:
    """Judge whether no dose helps, and whether those of IsoBN and cosine are equivalent to plain, or below it."""
    better = [row for row in contrasts if is_different(row, 1)]
    published = [row for row in contrasts if row["dial"] in ("isobn", "cosine")]
    open_ones = [row for row in published if not is_equivalent(row) and not is_different(row, -1)]
    because = f"{len(better)} of {len(contrasts)} doses above plain; of {len(published)} of IsoBN and cosine "
    because += f"{len(open_ones)} neither equivalent nor below"
    return choose(not better and not open_ones, bool(better)), because


def choose(is_supported: bool, is_refuted: bool) -> str:
    """Name the verdict; where a statement is both supported and refuted, it can't be told."""
    return OPEN if is_supported == is_refuted else SUPPORTED if is_supported else REFUTED


def is_found(row: TidyRow) -> bool:
    """Return True if a slope or correlation, or a contrast, differs from 0 after Holm's correction."""
    return bool(row["p_holm"] < ALPHA)


def is_different(contrast: TidyRow, sign: int) -> bool:
    """Return True if a contrast has a sign, by more than chance."""
    return is_found(contrast) and contrast["difference"] * sign > 0


def is_equivalent(contrast: TidyRow) -> bool:
    """Return True if a contrast is within the margin; one that is the same for all seeds has no p."""
    if math.isnan(contrast["p_margin"]):
        return abs(contrast["difference"]) <= MARGIN
    return bool(contrast["p_margin_holm"] < ALPHA)


def is_within(row: TidyRow, name: str, margin: float) -> bool:
    """Return True if the 90% interval of a slope or correlation is within a margin; ``name``: of its column."""
    low, high = ("over_low", "over_high") if name == "over_dial" else ("low", "high")
    return bool(abs(row[name]) + narrow_interval(row[low], row[high], row["seeds"]) < margin)


def find_decisive_cell(row: TidyRow, name: str, key: str, left_out: Iterable[TidyRow]) -> str:
    """Name the cells of the grid without which a result changes its sign or is lost before any correction.

    ``name``: the column of its value. ``key``: the column that tells it from others. Empty for a result that is none.
    """
    if not is_found(row):
        return ""
    cells = [
        other["left_out"]
        for other in left_out
        if other["left_out"]
        and name in other  # the rows are of slopes and of correlations
        and other[key] == row[key]
        and (other[name] * row[name] <= 0 or not other["p"] < ALPHA)
    ]
    return f"; rests on {', '.join(cells)}" if cells else ""


def write_slope(row: TidyRow) -> str:
    change = f"{row['over_dial']:+.2f} [{row['over_low']:+.2f}, {row['over_high']:+.2f}]"
    return f"{DIAL[row['dial']].short_label}: {change} over the dial, p = {row['p_holm']:.4f}"


def write_contrast(row: TidyRow) -> str:
    name, interval = DIAL[row["dial"]].name_cell(row["dose"]), f"[{row['low']:+.2f}, {row['high']:+.2f}]"
    tests = f"p = {row['p_holm']:.4f}, within the margin p = {row['p_margin_holm']:.4f}"
    return f"{name}: {row['difference']:+.2f} {interval}, {tests}"
