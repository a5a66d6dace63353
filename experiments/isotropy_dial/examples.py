"""Estimate slopes of ``isotropy_dial`` for new seeds and new dev examples together, from stored predictions.

The accuracy is a mean over examples, and a slope is linear in the accuracies. So a seed's slope is the mean over
examples of the slope of each example's correctness. In `isobench.statistics.paired_bootstrap` these values take the
place of the differences of two methods. The covariance of two seeds' slopes over examples needs no resampling.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isobench.analyses.rows import TidyRow
from isobench.report.pairs import SCORE_TOLERANCE, NotPairedError, read_predictions
from isobench.runs.layout import PREDICTIONS_FILE
from isobench.statistics.dose_response import fit_slopes
from isobench.statistics.paired_bootstrap import MIN_EXAMPLES, MIN_SEEDS, average_covariance, judge_differences
from isobench_papers.isotropy_dial.rows import DIALS, WHOLE, Dial, Series, collect_series

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject


def measure_example_slopes(
    slopes: Sequence[TidyRow], rows: Sequence[TidyRow], subjects: Sequence["Subject"]
) -> list[TidyRow]:
    """Measure the slopes of the score over all doses with intervals for new seeds and new examples.

    A slope is left out where the task's score is no accuracy, where predictions are missing or do not give the
    recorded scores, and with fewer seeds or examples than `isobench.statistics.paired_bootstrap` was simulated for.

    Args:
        slopes: of ``measure_slopes``.
        rows: of ``build_rows``.
        subjects: all planned runs.

    Returns:
        Rows like those of the slopes, with the number of examples; not corrected.
    """
    measured = []
    for row in slopes:
        if (row["quantity"], row["doses"]) != ("score", WHOLE):
            continue
        dial = next(dial for dial in DIALS if dial.name == row["dial"])
        series = collect_series(rows, row["encoder"], row["task"], dial)
        own = [subject for subject in subjects if (subject.encoder, subject.task) == (row["encoder"], row["task"])]
        try:
            values = slope_examples(series, read_correctness(series, dial, own))
        except NotPairedError:
            continue
        names = {name: row[name] for name in ("encoder", "task", "complete", "dial", "doses", "quantity")}
        measured.append({**names, **judge_slopes(values, max(series.doses) - min(series.doses))})
    return measured


def read_correctness(series: Series, dial: Dial, subjects: Sequence["Subject"]) -> np.ndarray:
    """Read which examples each run of a dial predicts right: [S, k, examples] of 0 and 1, as ``Series`` has its runs.

    Args:
        series: the dial's seeds and doses.
        dial: the dial.
        subjects: the planned runs of one encoder and task.

    Raises:
        NotPairedError: the score is no accuracy, predictions are missing, or runs have other examples.
    """
    task = subjects[0].cfg.task
    if task.generation or task.primary != "accuracy":
        raise NotPairedError(f"the score is {task.primary}")
    if len(series.seeds) < MIN_SEEDS:
        raise NotPairedError(f"fewer than {MIN_SEEDS} seeds")
    places = {(dial.read_dose(subject.cfg.calibration), subject.cfg.seed): subject for subject in subjects}
    runs = [places[dose, seed] for seed in series.seeds for dose in series.doses]
    split = task.dev_splits[0]
    files = [run.folder.result_file.parent / PREDICTIONS_FILE for run in runs]
    read = [read_predictions(file, split, run.cfg.seed) for file, run in zip(files, runs, strict=True)]
    for own in read:
        if not np.array_equal(own.index, read[0].index) or not np.array_equal(own.labels, read[0].labels):
            raise NotPairedError("the runs have other dev examples")
    correct = np.stack([own.predictions == own.labels for own in read])
    return correct.reshape(len(series.seeds), len(series.doses), -1).astype(np.float64)


def slope_examples(series: Series, correct: np.ndarray) -> np.ndarray:
    """Fit the correctness of each example, x 100, by a line in the dose: [S, k, examples] -> [S, examples].

    Raises:
        NotPairedError: there are few examples, or the predictions do not give the recorded scores.
    """
    if correct.shape[-1] < MIN_EXAMPLES:
        raise NotPairedError(f"fewer than {MIN_EXAMPLES} dev examples")
    if not np.allclose(100 * correct.mean(-1), series.values["score"], rtol=0, atol=SCORE_TOLERANCE):
        raise NotPairedError("the predictions do not give the recorded scores")
    return fit_slopes(series.doses, 100 * correct.swapaxes(1, 2))


def judge_slopes(values: np.ndarray, span: float) -> TidyRow:
    """Estimate the slope for new seeds and new examples from each example's slopes, [S, examples], as columns."""
    examples = values.shape[-1]
    test = judge_differences(values.mean(-1), average_covariance(values.T) / examples)
    slope, margin, p = float(test.value), float(test.margin), float(test.p)
    low, high = (math.nan, math.nan) if math.isnan(margin) else (slope - margin, slope + margin)
    change = {"over_dial": slope * span, "over_low": low * span, "over_high": high * span}
    return {"slope": slope, "low": low, "high": high, "p": p, "seeds": len(values), "examples": examples, **change}
