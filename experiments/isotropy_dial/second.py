"""Judge the statements of the second registration (second_registration.md) by the rules that it fixed."""

import math
from collections.abc import Sequence

from isobench.analyses.rows import TidyRow, group_rows, select_rows
from isobench.analyses.shown import Rows
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
Judged = tuple[str, str]  # a verdict, and why


def judge_statements(rows: Rows) -> list[TidyRow]:
    """Judge each statement for each encoder and task, once the registered families of tests are complete."""
    family = tuple(
        sum(row["complete"] and is_primary(row) for row in rows[name]) for name in ("slopes", "correlations")
    )
    verdicts: list[TidyRow] = []
    for (encoder, task), contrasts in group_rows(rows["contrasts"], "encoder", "task").items():
        names, judged = {"encoder": encoder, "task": task}, dict[str, Judged]()
        own = {name: select_rows(several, names) for name, several in rows.items()}
        if family == FAMILY_A and task == TASK:
            judged = judge_replication(own)
        if family == FAMILY_B and any(row["dial"] == "norm_effect" for row in contrasts):
            judged = judge_norm(own)
        for statement, (verdict, because) in judged.items():
            verdicts.append(names | {"statement": statement, "verdict": verdict, "because": because})
    return verdicts


def judge_replication(rows: Rows) -> dict[str, Judged]:
    """Judge the statements of part A, of one encoder and task."""
    (full,) = select_rows(rows["contrasts"], {"dial": "whitening", "dose": 0})
    costs = choose(is_different(full, -1), is_different(full, 1) or is_equivalent(full))
    judged = {
        "more isotropy helps (IsoBN's authors)": judge_slope("isobn", 1, rows),
        "calibration does not help (Ding et al.)": judge_calibration(rows["contrasts"]),
        "less isotropy helps (I-STAR's authors)": judge_slope("istar", -1, rows),
        "full whitening costs": (costs, write_contrast(full)),
    }
    for row in select_rows(rows["correlations"], {"kind": GIVEN_DIAL}):
        verdict, cell = judge_sign(row, MORE_ISOTROPIC[row["measure"]], rows)
        because = f"{row['correlation']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}], p = {row['p_holm']:.4f}{cell}"
        judged[f"the score follows {MEASURES[row['measure']]}"] = verdict, because
    return judged


def judge_norm(rows: Rows) -> dict[str, Judged]:
    """Judge the statements of part B, of one encoder and task."""
    (full,) = select_rows(rows["contrasts"], {"dial": "whitening_norm", "dose": 0, "against": PLAIN})
    (effect,) = select_rows(rows["slopes"], {"dial": "norm_effect", "quantity": "score", "doses": WHOLE})
    part, cell = judge_sign(effect, -1, rows)
    is_smaller = is_found(effect) and effect["slope"] < 0 and not cell
    costs, is_free = is_different(full, -1), is_equivalent(full)
    verdicts = {
        "whitening costs because of the norm alone": choose(is_smaller and is_free, costs),
        "whitening costs because of the directions": choose(costs, is_free or is_different(full, 1)),
        "the norm is a part of the cost": part,
    }
    if not turns_isotropy("whitening_norm", rows):
        return dict.fromkeys(verdicts, (NOT_ANSWERABLE, "the dose changes neither EV1 nor IsoScore"))
    because = f"{write_contrast(full)}; {write_slope(effect)}{cell}"
    return {statement: (verdict, because) for statement, verdict in verdicts.items()}


def judge_slope(dial: str, sign: int, rows: Rows) -> Judged:
    """Judge whether the slope of the score in a dial's dose has a sign, if the dial turns isotropy."""
    (row,) = select_rows(rows["slopes"], {"dial": dial, "doses": WHOLE, "quantity": "score"})
    if not turns_isotropy(dial, rows):
        return NOT_ANSWERABLE, f"the dose changes neither EV1 nor IsoScore; {write_slope(row)}"
    verdict, cell = judge_sign(row, sign, rows)
    return verdict, write_slope(row) + cell


def judge_sign(row: TidyRow, sign: int, rows: Rows) -> Judged:
    """Judge the sign of a slope or correlation, which its 90% interval within a margin refutes too.

    One that differs from 0 rests on the cells of the grid without which it changes its sign, or is lost before any
    correction. They are returned in words, empty for none. Then it judges nothing.
    """
    if "measure" in row:
        name, key, size, ends, margin = "correlation", "measure", "correlation", ("low", "high"), SMALL_CORRELATION
    else:
        name, key, size, ends, margin = "slope", "dial", "over_dial", ("over_low", "over_high"), MARGIN
    cells = [
        other["left_out"]
        for other in rows["left_out_cells"]
        if is_found(row)
        and other["left_out"]
        and name in other  # the rows are of slopes and of correlations
        and other[key] == row[key]
        and (other[name] * row[name] <= 0 or not other["p"] < ALPHA)
    ]
    if cells:
        return OPEN, f"; rests on {', '.join(cells)}"
    is_small = abs(row[size]) + narrow_interval(*(row[end] for end in ends), row["seeds"]) < margin
    is_so, is_opposite = (is_found(row) and row[name] * way > 0 for way in (sign, -sign))
    return choose(is_so, is_opposite or is_small), ""


def turns_isotropy(dial: str, rows: Rows) -> bool:
    """Say if EV1 or IsoScore follows a dial's dose (the registered check)."""
    own = select_rows(rows["slopes"], {"dial": dial, "doses": WHOLE})
    return any(row["p"] < ALPHA for row in own if row["quantity"] in TURNED)


def judge_calibration(contrasts: Sequence[TidyRow]) -> Judged:
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
    return bool(row["p_holm"] < ALPHA)


def is_different(contrast: TidyRow, sign: int) -> bool:
    return is_found(contrast) and contrast["difference"] * sign > 0


def is_equivalent(contrast: TidyRow) -> bool:
    """Return True if a contrast is within the margin; one that is the same for all seeds has no p."""
    if math.isnan(contrast["p_margin"]):
        return abs(contrast["difference"]) <= MARGIN
    return bool(contrast["p_margin_holm"] < ALPHA)


def write_slope(row: TidyRow) -> str:
    change = f"{row['over_dial']:+.2f} [{row['over_low']:+.2f}, {row['over_high']:+.2f}]"
    return f"{DIAL[row['dial']].short_label}: {change} over the dial, p = {row['p_holm']:.4f}"


def write_contrast(row: TidyRow) -> str:
    name, interval = DIAL[row["dial"]].name_cell(row["dose"]), f"[{row['low']:+.2f}, {row['high']:+.2f}]"
    tests = f"p = {row['p_holm']:.4f}, within the margin p = {row['p_margin_holm']:.4f}"
    return f"{name}: {row['difference']:+.2f} {interval}, {tests}"
