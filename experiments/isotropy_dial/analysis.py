"""Dose and response: does the score follow the dose of a method that changes isotropy, does it follow isotropy?

Every statistic is computed for each seed by itself; intervals and tests are Student's t over the seeds
(isobench.statistics.dose_response). The hypotheses were written down before the first run:
experiments/isotropy_dial/preregistration.md.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isobench.analyses.rows import TidyRow, group_rows, select_rows
from isobench.analyses.shown import Rows
from isobench.common.errors import UserError
from isobench.report.paired_tests import SCORE_TOLERANCE, NotPairedError, read_predictions
from isobench.statistics.dose_response import (
    SeedMean,
    average_over_seeds,
    correlate_partially,
    fit_slopes,
    judge_equivalence,
)
from isobench.statistics.paired_bootstrap import MIN_EXAMPLES, MIN_SEEDS, average_covariance, judge_differences
from isobench.statistics.seeds import holm
from isobench_papers.isotropy_dial import design
from isobench_papers.isotropy_dial.rows import (
    ACROSS,
    DIAL,
    FINISHED,
    GIVEN_DIAL,
    GIVEN_DOSE,
    MEASURES,
    PLAIN,
    VOCABULARY_MEASURES,
    WHOLE,
    WITHIN,
    Dial,
    Series,
    build_rows,
    collect_all_series,
    collect_series,
    group_studies,
    is_primary,
)
from isobench_papers.isotropy_dial.second import MARGIN, TASK, judge_statements
from isobench_papers.isotropy_dial.show import show

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

__all__ = ["compute", "show"]
PARTS = {WHOLE: (-math.inf, math.inf), "up to 0": (-math.inf, 0.0), "from 0": (0.0, math.inf)}  # of the doses


def compute(subjects: list["Subject"]) -> Rows:
    """Estimate how scores follow doses and isotropy, from the records of trained runs.

    Args:
        subjects: all planned runs, also those without a result, which are named.

    Raises:
        UserError: no finished run is a dose of a dial, or runs differ in more than dose and seed.
    """
    design.refuse_mixed_settings(subjects)
    progress = design.measure_progress(subjects)
    complete = design.list_complete(progress)
    rows = design.keep_grid_runs(build_rows(subjects), design.list_grid_runs(subjects[0].cfg), complete)
    if not any(row["state"] == FINISHED for row in rows):
        raise UserError("no finished run is a dose of a dial: run +experiment=isotropy_dial with its own methods")
    measured = {
        "slopes": measure_slopes(rows),
        "correlations": measure_correlations(rows),
        "contrasts": measure_contrasts(rows),
        "left_out_cells": leave_one_cell_out(rows) if complete else [],
    }
    optional = {
        "verdicts": judge_statements(measured),
        "slopes_new_examples": measure_example_slopes(measured["slopes"], rows, subjects),
        "code_second": design.list_code(list(filter(is_of_second, subjects))),
    }
    return {
        "doses": rows,
        **{name: own for name, own in (measured | optional).items() if own or name in ("slopes", "correlations")},
        "progress": progress,
        "design": design.list_design(subjects[0].cfg),
        "code": design.list_code([subject for subject in subjects if not is_of_second(subject)]),
    }


def is_of_second(subject: "Subject") -> bool:
    """Return True for a run that the second registration plans."""
    return subject.task == TASK or bool(subject.cfg.calibration.get("keep_norm"))


def describe_differences(subjects: list["Subject"], rows: Rows) -> list[str]:
    """Return nothing: the study reproduces no paper."""
    return []


def measure_slopes(rows: Sequence[TidyRow], primary: bool = False) -> list[TidyRow]:
    """Measure the slope in the dose of score and isotropy, for each encoder, task and dial.

    Holm's correction is made over the primary slopes: those of the score over all doses. I-STAR's halves, with the
    doses up to 0 and from 0, and the slopes of isotropy are not corrected. ``primary`` leaves them out.
    """
    slopes: list[TidyRow] = []
    for names, own in group_studies(rows):
        for dial, series in collect_all_series(own).items():
            measures = () if primary else (*MEASURES, *(VOCABULARY_MEASURES if dial == "cosine" else ()))
            fitted = [(WHOLE, name) for name in ("score", *measures)]
            fitted += [(part, "score") for part in list(PARTS)[1:] if dial == "istar" and not primary]
            for part, quantity in fitted:
                low, high = PARTS[part]
                chosen = [place for place, dose in enumerate(series.doses) if low <= dose <= high]
                if len(chosen) > 1:
                    doses = [series.doses[place] for place in chosen]
                    mean = average_over_seeds(fit_slopes(doses, series.values[quantity][:, chosen]))
                    about = {"dial": dial, "doses": part, "quantity": quantity}
                    slopes.append(names | about | name_mean(mean, "slope") | span_dial(mean, doses))
    add_holm(list(filter(is_primary, slopes)))
    return slopes


def measure_correlations(rows: Sequence[TidyRow], primary: bool = False) -> list[TidyRow]:
    """Measure Spearman's correlation of score and isotropy, for each encoder, task and measure.

    It is measured within each dial, across all dials, across them given the dial, and given the dial and the dose
    within it. Holm's correction is made over the primary ones: those given the dial; ``primary`` leaves out the
    others. With one dial, the correlation within it takes their place, and is not corrected.
    """
    correlations: list[TidyRow] = []
    for names, own in group_studies(rows):
        series = collect_all_series(own)
        turned = {name: one for name, one in series.items() if not DIAL[name].pair}
        across = [ACROSS, GIVEN_DIAL, GIVEN_DOSE] if len(turned) > 1 else [GIVEN_DOSE] * len(turned)
        within = series if turned else {}
        if primary:
            within, across = ({}, [GIVEN_DIAL]) if len(turned) > 1 else (within, [])
        for measure in MEASURES:
            found = [(WITHIN, dial, *correlate_within(own, dial, one, measure)) for dial, one in within.items()]
            found += [(kind, "", correlate_across(turned, measure, kind), 1) for kind in across]
            for kind, dial, values, largest in found:
                mean = average_over_seeds(values)
                low, high = (float(np.clip(end, -largest, largest)) for end in (mean.low, mean.high))
                ends = name_mean(mean._replace(low=low, high=high), "correlation")
                correlations.append(names | {"measure": measure, "kind": kind, "dial": dial} | ends)
    add_holm(list(filter(is_primary, correlations)))
    return correlations


def correlate_within(rows: Sequence[TidyRow], dial: str, series: Series, measure: str) -> tuple[np.ndarray, int]:
    """Correlate score and a measure over a dial's doses, seed by seed, [S]; return the largest possible value too.

    Of a dial that is the difference of two, it is the difference of their correlations.
    """
    found = [
        correlate_where_defined(one.select(series.seeds, measure), one.select(series.seeds, "score"))
        for one in [collect_series(rows, DIAL[name]) for name in DIAL[dial].pair] or [series]
    ]
    return (found[0] - found[1], 2) if len(found) > 1 else (found[0], 1)


def correlate_across(series: dict[str, Series], measure: str, kind: str) -> np.ndarray:
    """Correlate score and a measure over the doses of all dials, seed by seed, [S]; ``kind`` says what is given.

    Seeds that lack a run of any dial are left out. Plain fine-tuning is one run across dials. Given the dial, it is
    dose 0 of each dial that starts there, because each dial is then looked at by itself.
    """
    seeds = sorted(set.intersection(*(set(one.seeds) for one in series.values())))
    x, y = (np.hstack([one.select(seeds, name) for one in series.values()]) for name in (measure, "score"))
    if kind == ACROSS:
        is_plain = [DIAL[name].starts_plain and dose == 0 for name, one in series.items() for dose in one.doses]
        once = np.array([not plain or not any(is_plain[:place]) for place, plain in enumerate(is_plain)])
        return correlate_where_defined(x[:, once], y[:, once])
    dials = np.repeat(np.eye(len(series)), [len(one.doses) for one in series.values()], axis=0)  # [n, dials]
    doses = np.concatenate([np.array(one.doses) - np.mean(one.doses) for one in series.values()])
    return correlate_where_defined(x, y, dials if kind == GIVEN_DIAL else np.hstack([dials, dials * doses[:, None]]))


def correlate_where_defined(x: np.ndarray, y: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """Correlate as ``correlate_partially``; NaN for a seed with a value that is not finite. [S, n] -> [S]"""
    if not len(x):
        return np.array([])
    is_defined = np.isfinite(x).all(-1) & np.isfinite(y).all(-1)
    return np.where(is_defined, correlate_partially(x, y, given), math.nan)


def name_mean(mean: SeedMean, name: str) -> TidyRow:
    """Return a mean over seeds as columns of a tidy row; ``p_holm`` is NaN until ``add_holm`` fills it."""
    return {
        name: mean.value,
        "low": mean.low,
        "high": mean.high,
        "p": mean.p,
        "p_holm": math.nan,
        "seeds": mean.seeds,
    }


def add_holm(family: Sequence[TidyRow], name: str = "p") -> None:
    """Fill ``p_holm`` in the rows of one family of tests, those of complete studies; it stays NaN in all others.

    As long as no study is complete, the family is all rows, and the correction is provisional. ``name``: of p.
    """
    tested = [row for row in family if row["complete"]] or family
    for row, p in zip(tested, holm([row[name] for row in tested]), strict=True):
        row[f"{name}_holm"] = p


def measure_contrasts(rows: Sequence[TidyRow]) -> list[TidyRow]:
    """Measure the score at each dose less that of plain fine-tuning, seed by seed, in points.

    Where a dial is the difference of two, the contrast is that of their runs at one dose. ``p`` tests a difference of
    0, and ``p_margin`` one of ``MARGIN`` or more (`isobench.statistics.dose_response.judge_equivalence`). Both are
    corrected over the contrasts of a task, those with plain fine-tuning and those of two dials by themselves. A
    contrast that is the same number for all seeds has no p and belongs to no family.
    """
    contrasts: list[TidyRow] = []
    for names, own in group_studies(rows):
        plain = {row["seed"]: row["score"] for row in select_rows(own, {"method": PLAIN})}
        for dial, series in collect_all_series(own).items():
            (against,) = DIAL[dial].pair[-1:] or (PLAIN,)
            theirs = np.array([0.0 if DIAL[dial].pair else plain.get(seed, math.nan) for seed in series.seeds])
            for dose, scores in zip(series.doses, series.values["score"].T, strict=True):
                if DIAL[dial].starts_plain and dose == 0:
                    continue
                differences = (scores - theirs)[np.isfinite(scores - theirs)]
                p, *_ = judge_equivalence(differences, MARGIN) if len(differences) else (math.nan,)
                found = name_mean(average_over_seeds(differences), "difference")
                about = {"dial": dial, "dose": dose, "against": against}
                contrasts.append(names | about | found | {"p_margin": p, "p_margin_holm": math.nan})
    for family in group_rows(contrasts, "task", "against").values():
        add_holm(family)
        add_holm(family, "p_margin")
    return contrasts


def leave_one_cell_out(rows: Sequence[TidyRow]) -> list[TidyRow]:
    """Repeat the primary tests with all cells of the grid (``left_out`` is empty), then without each of them.

    A cell is left out of all encoders and tasks; plain fine-tuning is one cell, though it stands in several dials.
    Holm's corrections are made again over what is left. Without a cell at its end, a dial's range is smaller.
    """
    cells = [DIAL[row["dial"]].name_cell(row["dose"]) for row in rows]
    found: list[TidyRow] = []
    for left_out in ("", *dict.fromkeys(cells)):
        kept = [row for row, cell in zip(rows, cells, strict=True) if cell != left_out]
        tests = (*measure_slopes(kept, primary=True), *measure_correlations(kept, primary=True))
        found += [{"left_out": left_out, "measure": "", **row} for row in tests if row["complete"]]
    return found


def measure_example_slopes(
    slopes: Sequence[TidyRow], rows: Sequence[TidyRow], subjects: Sequence["Subject"]
) -> list[TidyRow]:
    """Measure the slopes of the score over all doses with intervals for new seeds and new examples.

    The accuracy is a mean over examples, and a slope is linear in the accuracies. So a seed's slope is the mean over
    examples of the slope of each example's correctness. In `isobench.statistics.paired_bootstrap` these values take
    the place of the differences of two methods. The covariance of two seeds' slopes needs no resampling.

    Returns:
        Rows like ``slopes``, those of ``measure_slopes``, with the number of examples; not corrected. Those are left
        out for which ``slope_examples`` raises.
    """
    measured = []
    for row in filter(is_primary, slopes):
        dial, place = DIAL[row["dial"]], {name: row[name] for name in ("encoder", "task")}
        series = collect_series(select_rows(rows, place), dial)
        own = [subject for subject in subjects if (subject.encoder, subject.task) == tuple(place.values())]
        try:
            values = slope_examples(series, dial, own)
        except NotPairedError:
            continue
        names = {name: row[name] for name in ("encoder", "task", "complete", "dial", "doses", "quantity")}
        test = judge_differences(values.mean(-1), average_covariance(values.T) / values.shape[-1])
        slope, margin = float(test.value), float(test.margin)
        mean = SeedMean(slope, slope - margin, slope + margin, float(test.p), len(values))
        numbers = {"slope": slope, "low": mean.low, "high": mean.high, "p": mean.p, "seeds": mean.seeds}
        measured.append(names | numbers | {"examples": values.shape[-1]} | span_dial(mean, series.doses))
    return measured


def slope_examples(series: Series, dial: Dial, subjects: Sequence["Subject"]) -> np.ndarray:
    """Fit the correctness of each example, x 100, by a line in the dose: [S, examples]; ``subjects``: of one task.

    Raises:
        NotPairedError: the score is no accuracy, predictions are missing or do not give the recorded scores, runs
            have other examples, or there are few seeds or examples.
    """
    task = subjects[0].cfg.task
    if task.generation or task.primary != "accuracy" or len(series.seeds) < MIN_SEEDS:
        raise NotPairedError(f"the score is {task.primary}, of {len(series.seeds)} seeds")
    places = {(dial.read_dose(subject.cfg.calibration), subject.cfg.seed): subject for subject in subjects}
    runs = [places[dose, seed] for seed in series.seeds for dose in series.doses]
    read = [read_predictions(run.folder, task.dev_splits[0], run.cfg.seed) for run in runs]
    first = read[0]
    if not all(np.array_equal(own.labels, first.labels) for own in read):
        raise NotPairedError("the runs have other dev examples")
    correct = 100.0 * np.stack([own.predictions == own.labels for own in read])
    correct = correct.reshape(len(series.seeds), len(series.doses), -1)
    is_recorded = np.allclose(correct.mean(-1), series.values["score"], rtol=0, atol=SCORE_TOLERANCE)
    if not is_recorded or correct.shape[-1] < MIN_EXAMPLES:
        raise NotPairedError("the predictions do not give the recorded scores, or are few")
    return fit_slopes(series.doses, correct.swapaxes(1, 2))


def span_dial(slope: SeedMean, doses: Sequence[float]) -> TidyRow:
    """Return how much a line with this slope changes over the doses, with the ends of its interval."""
    span = max(doses) - min(doses)
    return {"over_dial": slope.value * span, "over_low": slope.low * span, "over_high": slope.high * span}
