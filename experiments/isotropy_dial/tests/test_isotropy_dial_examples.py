"""Slopes of the dose-response study for new dev examples: the variance is that of seeds and of examples together."""

from types import SimpleNamespace

import numpy as np
import pytest
from dial_study import Study
from helpers import write_parquet
from scipy import stats

from isobench.runs.folder import RunFolder
from isobench.statistics.dose_response import student_t
from isobench_papers.isotropy_dial import analysis as dial_analysis
from isobench_papers.isotropy_dial.rows import DIALS, build_rows

EXAMPLES = 120
SEEDS = (1, 2, 3)


@pytest.fixture
def study(tmp_path):
    """Three seeds of IsoBN with predictions: an example is right more often if it is easy, and at a high dose."""
    study = Study(tmp_path, SEEDS)
    study.subjects = [s for s in study.subjects if DIALS[0].read_dose(s.cfg.calibration) is not None]
    rng = np.random.default_rng(5)
    easy, rises = rng.normal(size=EXAMPLES), rng.normal(0.4, 0.8, EXAMPLES)
    labels = rng.integers(0, 2, EXAMPLES)
    for number, subject in enumerate(study.subjects):
        dose = DIALS[0].read_dose(subject.cfg.calibration)
        subject.correct = easy + rises * dose + rng.normal(0, 0.7, EXAMPLES) > 0
        subject.record.best.score = subject.correct.mean()
        subject.folder = RunFolder(str(tmp_path), str(number))
        predictions = np.where(subject.correct, labels, 1 - labels)
        split = [subject.cfg.task.dev_splits[0]] * EXAMPLES
        columns = {"split": split, "index": list(range(EXAMPLES)), "label": labels, "prediction": predictions}
        write_parquet(subject.folder.predictions_file, columns)
    return study


def measure(study):
    rows = build_rows(study.subjects)
    return dial_analysis.measure_example_slopes(dial_analysis.measure_slopes(rows), rows, study.subjects)


def test_the_variance_is_that_of_seeds_and_the_covariance_over_examples(study):
    (row,) = measure(study)
    by_seed = []
    for seed in SEEDS:
        own = [s for s in study.subjects if s.cfg.seed == seed]
        doses = np.array([DIALS[0].read_dose(s.cfg.calibration) for s in own])
        correct = np.array([s.correct for s in own], dtype=float)
        by_seed.append(100 * np.polyfit(doses, correct, 1)[0])  # the slope of each example
    covariances = np.cov(np.array(by_seed)) / EXAMPLES
    means = np.mean(by_seed, axis=1)
    shared = covariances[np.triu_indices(3, 1)].mean()
    error = np.sqrt(means.var(ddof=1) / 3 + shared)
    _, low, high, _ = student_t(means)
    assert shared > 0
    assert (row["slope"], row["examples"], row["seeds"]) == (pytest.approx(means.mean()), EXAMPLES, 3)
    freedom = 2 * (1 + shared / (means.var(ddof=1) / 3))
    margin = max(stats.t.ppf(0.975, freedom) * error, means.mean() - low)
    assert (row["low"], row["high"]) == pytest.approx((means.mean() - margin, means.mean() + margin))
    assert row["over_high"] == pytest.approx(row["high"])  # the dial goes from 0 to 1
    assert high <= row["high"] + 1e-9


def test_no_interval_without_predictions_or_with_another_score(study):
    study.subjects[3].record.best.score += 0.01
    assert measure(study) == []
    study.subjects[3].record.best.score -= 0.01
    assert len(measure(study)) == 1
    study.subjects[3].folder.predictions_file.unlink()
    assert measure(study) == []
    for subject in study.subjects:
        task = SimpleNamespace(generation=None, primary="f1", dev_splits=["validation"])
        subject.cfg = SimpleNamespace(**vars(subject.cfg) | {"task": task})
    assert measure(study) == []
