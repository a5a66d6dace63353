"""Dose and response: does the score follow the dose of a method that changes isotropy, does it follow isotropy?

Every statistic is computed for each seed by itself; intervals and tests are Student's t over the seeds
(isobench.statistics.dose_response). The hypotheses were written down before the first run:
experiments/isotropy_dial/preregistration.md.
"""

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from isobench.analyses.findings import Findings
from isobench.analyses.rows import TidyRow
from isobench.common.errors import UserError
from isobench.statistics.correlation import correlate_partially
from isobench.statistics.dose_response import SeedMean, average_over_seeds, fit_slopes
from isobench.statistics.seeds import holm
from isobench_papers.isotropy_dial.examples import measure_example_slopes
from isobench_papers.isotropy_dial.figures import draw_doses, draw_isotropy
from isobench_papers.isotropy_dial.notes import describe_study, list_notes
from isobench_papers.isotropy_dial.progress import keep_grid_runs, measure_progress
from isobench_papers.isotropy_dial.rows import (
    ACROSS,
    DIALS,
    FINISHED,
    GIVEN_DIAL,
    GIVEN_DOSE,
    MEASURES,
    VOCABULARY_MEASURES,
    WHOLE,
    WITHIN,
    Group,
    Series,
    build_rows,
    collect_all_series,
    list_groups,
)
from isobench_papers.isotropy_dial.settings import refuse_mixed_settings
from isobench_papers.isotropy_dial.tables import (
    build_check_table,
    build_correlation_tables,
    build_example_table,
    build_half_table,
    build_slope_table,
)

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

HALVES = {"up to 0": (-math.inf, 0.0), "from 0": (0.0, math.inf)}  # the doses of I-STAR, which change sign


def analyse(subjects: list["Subject"]) -> Findings:
    """Estimate how scores follow doses and isotropy, from the records of trained runs.

    Args:
        subjects: all planned runs, also those without a result, which are named.

    Raises:
        UserError: no finished run is a dose of a dial, or runs differ in more than dose and seed.
    """
    refuse_mixed_settings(subjects)
    progress = measure_progress(subjects)
    rows = keep_grid_runs(build_rows(subjects), progress)
    if not any(row["state"] == FINISHED for row in rows):
        raise UserError("no finished run is a dose of a dial: run +experiment=isotropy_dial with its own methods")
    complete = [group for group, own in progress.items() if own.is_complete]
    labels = {group: own.label for group, own in progress.items()}
    slopes, correlations = measure_slopes(rows, complete), measure_correlations(rows, complete)
    of_examples = measure_example_slopes(slopes, rows, subjects)
    return Findings(
        numbers={"doses": rows, "slopes": slopes, "correlations": correlations}
        | ({"slopes_new_examples": of_examples} if of_examples else {}),
        figures={"isotropy": draw_isotropy(rows, correlations, labels), "dose": draw_doses(rows, labels)},
        tables=[
            build_slope_table(slopes, labels),
            build_half_table(slopes, labels),
            *([build_example_table(of_examples, labels)] if of_examples else []),
            build_check_table(slopes, labels),
            *build_correlation_tables(correlations, labels),
        ],
        notes=[*describe_study(subjects, progress), *list_notes(rows, slopes, correlations)],
        differs=[],  # it reproduces no paper
    )


def measure_slopes(rows: Sequence[TidyRow], complete: Collection[Group] = ()) -> list[TidyRow]:
    """Measure the slope in the dose of score and isotropy, for each encoder, task and dial.

    Holm's correction is made over the slopes of the score over all doses. I-STAR's halves, with the doses up to 0 and
    from 0, and the slopes of isotropy are not corrected.

    Args:
        rows: of ``build_rows``.
        complete: the encoders and tasks whose study is complete, which the correction is made over
            (``add_holm``).
    """
    slopes: list[TidyRow] = []
    for encoder, task in list_groups(rows):
        for dial, series in collect_all_series(rows, encoder, task).items():
            about = {"encoder": encoder, "task": task, "complete": (encoder, task) in complete, "dial": dial}
            quantities = ("score", *MEASURES, *(VOCABULARY_MEASURES if dial == "cosine" else ()))
            slopes += [{**about, "doses": WHOLE, **fit_line(series, quantity)} for quantity in quantities]
            for half, ends in (HALVES if dial == "istar" else {}).items():
                if sum(ends[0] <= dose <= ends[1] for dose in series.doses) > 1:
                    slopes.append({**about, "doses": half, **fit_line(series, "score", ends)})
    add_holm([row for row in slopes if row["quantity"] == "score" and row["doses"] == WHOLE])
    return slopes


def fit_line(series: Series, quantity: str, ends: tuple[float, float] = (-math.inf, math.inf)) -> TidyRow:
    """Fit score or measure by a line in the doses between two ends; return slope and change over these doses."""
    chosen = [place for place, dose in enumerate(series.doses) if ends[0] <= dose <= ends[1]]
    doses = [series.doses[place] for place in chosen]
    mean, span = average_over_seeds(fit_slopes(doses, series.values[quantity][:, chosen])), max(doses) - min(doses)
    change = {"over_dial": mean.value * span, "over_low": mean.low * span, "over_high": mean.high * span}
    return {"quantity": quantity, **name_mean(mean, "slope"), **change}


def measure_correlations(rows: Sequence[TidyRow], complete: Collection[Group] = ()) -> list[TidyRow]:
    """Measure Spearman's correlation of score and isotropy, for each encoder, task and measure.

    It is measured within each dial, across all dials, across them given the dial, and given the dial and the dose
    within it. Holm's correction is made over those given the dial. Arguments as of ``measure_slopes``.
    """
    correlations: list[TidyRow] = []
    for encoder, task in list_groups(rows):
        series = collect_all_series(rows, encoder, task)
        for measure in MEASURES:
            names = {"encoder": encoder, "task": task, "complete": (encoder, task) in complete, "measure": measure}
            for dial, one in series.items():
                found = correlate_where_defined(one.values[measure], one.values["score"])
                correlations.append({**names, "kind": WITHIN, "dial": dial, **name_correlation(found)})
            for kind, found in correlate_across(series, measure).items():
                correlations.append({**names, "kind": kind, "dial": "", **name_correlation(found)})
    add_holm([row for row in correlations if row["kind"] == GIVEN_DIAL])
    return correlations


def correlate_across(series: dict[str, Series], measure: str) -> dict[str, np.ndarray]:
    """Correlate score and a measure over the doses of all dials, seed by seed: kind -> correlations, [S].

    Seeds that lack a run of any dial are left out. Plain fine-tuning is one run across dials. Given the dial, it is
    dose 0 of each dial that starts there, because each dial is then looked at by itself.
    """
    if len(series) < 2:
        return {}
    seeds = sorted(set.intersection(*(set(one.seeds) for one in series.values())))
    x, y = (np.hstack([one.select_seeds(seeds, name) for one in series.values()]) for name in (measure, "score"))
    dials = np.repeat(np.eye(len(series)), [len(one.doses) for one in series.values()], axis=0)  # [n, dials]
    doses = np.concatenate([np.array(one.doses) - np.mean(one.doses) for one in series.values()])
    once = find_first_runs(series)
    return {
        ACROSS: correlate_where_defined(x[:, once], y[:, once]),
        GIVEN_DIAL: correlate_where_defined(x, y, dials),
        GIVEN_DOSE: correlate_where_defined(x, y, np.hstack([dials, dials * doses[:, None]])),
    }


def find_first_runs(series: dict[str, Series]) -> np.ndarray:
    """Mark the doses of all dials, one after another, that are no repetition of plain fine-tuning: [n] booleans."""
    starts_plain = {dial.name: dial.starts_plain for dial in DIALS}
    is_plain = [starts_plain[name] and dose == 0 for name, one in series.items() for dose in one.doses]
    return np.array([not plain or not any(is_plain[:place]) for place, plain in enumerate(is_plain)])


def correlate_where_defined(x: np.ndarray, y: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """Correlate as ``correlate_partially``; NaN for a seed with a value that is not finite. [S, n] -> [S]"""
    if not len(x):
        return np.array([])
    is_defined = np.isfinite(x).all(-1) & np.isfinite(y).all(-1)
    return np.where(is_defined, correlate_partially(x, y, given), math.nan)


def name_mean(mean: SeedMean, name: str) -> TidyRow:
    """Return a mean over seeds as columns of a tidy row; ``p_holm`` is NaN until ``add_holm`` fills it."""
    ends = {"low": mean.low, "high": mean.high}
    return {name: mean.value, **ends, "p": mean.p, "p_holm": math.nan, "seeds": mean.seeds}


def name_correlation(found: np.ndarray) -> TidyRow:
    """Return the mean of correlations over seeds, [S], as columns; its interval ends at -1 and 1."""
    mean = average_over_seeds(found)
    low, high = (float(np.clip(end, -1, 1)) for end in (mean.low, mean.high))
    return name_mean(mean._replace(low=low, high=high), "correlation")


def add_holm(family: Sequence[TidyRow]) -> None:
    """Fill ``p_holm`` in the rows of one family of tests, those of complete studies; it stays NaN in all others.

    As long as no study is complete, the family is all rows, and the correction is provisional.
    """
    of_complete = [row for row in family if row["complete"]] or family
    tested = [row for row in of_complete if not math.isnan(row["p"])]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_holm"] = p
