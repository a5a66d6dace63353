"""Pairs of seeds and examples: metrics against scikit-learn and scipy, the test against loops and simulations."""

import numpy as np
import pytest
import simulated_pairs
from scipy import special, stats

from isobench.metrics.task import METRIC_FUNCTIONS
from isobench.statistics.paired_bootstrap import (
    ALL_EQUAL,
    RESAMPLED_METRICS,
    average_covariance,
    compare_predictions,
    draw_multiplicities,
    judge_differences,
    resample_differences,
    resample_metric,
)


def made_up_runs(metric: str, seeds: int = 4, examples: int = 120):
    rng = np.random.default_rng(0)
    if "pearson" in metric or "spearman" in metric:
        labels = rng.integers(0, 6, examples) / 2.0  # ties, as human ratings have
        shared = labels + rng.normal(size=examples)
        ours, theirs = (shared + rng.normal(0, 0.5, (seeds, examples)) for _ in range(2))
        return labels, ours, np.round(theirs)  # ties among predictions too
    classes = 3 if metric in ("accuracy", "matthews") else 2
    labels = rng.integers(classes, size=examples).astype(float)
    ours, theirs = (
        np.where(rng.random((seeds, examples)) < 0.8, labels, rng.integers(classes, size=examples)) for _ in range(2)
    )
    return labels, ours, theirs


@pytest.mark.parametrize("metric", RESAMPLED_METRICS)
def test_metrics_on_samples_are_those_of_the_drawn_examples(metric):
    labels, ours, _ = made_up_runs(metric, seeds=2, examples=30)
    multiplicities = draw_multiplicities(30, resamples=50)
    assert (multiplicities.sum(1) == 30).all()
    scores = resample_metric(metric, labels, ours, multiplicities)
    assert scores.shape == (50, 2)
    for sample in range(0, 50, 7):
        drawn = np.repeat(np.arange(30), multiplicities[sample])
        for run in range(2):
            expected = METRIC_FUNCTIONS[metric](labels[drawn], ours[run][drawn])
            assert scores[sample, run] == pytest.approx(expected, abs=1e-10)
    labels, predictions = np.array([1.0, 1, 1, 0]), np.array([[0.0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
    for weights in ([1, 1, 1, 1], [2, 1, 1, 0], [0, 0, 0, 4]):  # of one class
        drawn = np.repeat(np.arange(4), weights)
        found = resample_metric(metric, labels, predictions, np.array([weights]))[0]
        expected = [METRIC_FUNCTIONS[metric](labels[drawn], run[drawn]) for run in predictions]
        np.testing.assert_allclose(found, expected, atol=1e-12)  # NaN where the definition is


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews", "pearson", "spearman"])
def test_the_comparison_is_that_of_a_plain_loop(metric):
    labels, ours, theirs = made_up_runs(metric)
    multiplicities = draw_multiplicities(120, resamples=20)
    found = compare_predictions(metric, labels, ours, theirs, multiplicities)
    score = METRIC_FUNCTIONS[metric]
    d = [100 * (score(labels, a) - score(labels, b)) for a, b in zip(ours, theirs, strict=True)]
    samples = []
    for row in multiplicities:
        drawn = np.repeat(np.arange(120), row)
        pairs = zip(ours, theirs, strict=True)
        samples.append([100 * (score(labels[drawn], a[drawn]) - score(labels[drawn], b[drawn])) for a, b in pairs])
    covariances = np.cov(np.array(samples).T) * 120 / 119
    if metric == "accuracy":  # infinitely many samples: the covariance of the examples themselves
        covariances = np.cov(100.0 * ((ours == labels).astype(float) - (theirs == labels))) / 120
    of_examples = max(np.mean([covariances[i, k] for i in range(4) for k in range(4) if i != k]), 0.0)
    of_seeds = np.var(d, ddof=1) / 4
    freedom = 3 * (1 + of_examples / of_seeds)
    margins = [special.stdtrit(f, 0.975) * v**0.5 for f, v in ((3, of_seeds), (freedom, of_seeds + of_examples))]
    assert found.reason == ""
    assert (found.seeds, found.examples) == (4, 120)
    assert found.difference == pytest.approx(np.mean(d))
    assert found.high - found.difference == pytest.approx(max(margins), rel=1e-9)
    assert (found.low > 0 or found.high < 0) == (found.p < 0.05)


def test_samples_of_the_examples_give_the_exact_covariance_of_accuracy():
    labels, ours, theirs = made_up_runs("accuracy", seeds=5, examples=200)
    ours[:, :20], theirs[:, 10:40] = labels[:20], labels[10:40]  # examples that the methods answer alike in all seeds
    theirs[:, :10] = (labels[:10] + 1) % 3
    changes = (ours == labels).astype(float) - (theirs == labels)
    exact = average_covariance(changes.T) / 200
    differences, covariance = resample_differences("accuracy", labels, ours, theirs, draw_multiplicities(200, 8_000))
    assert differences == pytest.approx(changes.mean(1))
    assert covariance == pytest.approx(exact, rel=0.08)
    assert exact > 0


def test_the_variance_is_that_of_seeds_examples_and_both():
    rng = np.random.default_rng(0)
    seeds, examples, studies = 4, 30, 20_000
    d = rng.normal(0, 0.3, (studies, seeds, 1)) + rng.normal(0, 1.0, (studies, 1, examples))
    d += rng.normal(0, 2.0, (studies, seeds, examples))
    estimated = d.mean(2).var(1, ddof=1) / seeds + average_covariance(d.swapaxes(1, 2)) / examples
    expected = 0.3**2 / seeds + 1.0 / examples + 4.0 / (seeds * examples)
    assert estimated.mean() == pytest.approx(expected, rel=0.02)
    assert d.mean((1, 2)).var() == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("seeds", [3, 4, 5, 10, 20])
def test_coverage_by_integration_over_the_spread_of_few_seeds(seeds):
    levels = (np.arange(2001) + 0.5) / 2001
    spread = special.chdtri(seeds - 1, 1 - levels) / (seeds - 1)  # A, of mean 1
    pattern = np.linspace(-1, 1, seeds) / np.linspace(-1, 1, seeds).std(ddof=1) * seeds**0.5
    for c in (0, 0.01, 0.1, 0.3, 1, 3, 10, 100):
        margin = judge_differences(spread[:, None] ** 0.5 * pattern, c).margin
        coverage = np.mean(1 - 2 * special.ndtr(-margin / (1 + c) ** 0.5))
        assert 0.948 < coverage < 0.965
        hillis = special.stdtrit((seeds - 1) * (1 + c / spread) ** 2, 0.975) * (spread + c) ** 0.5
        if seeds == 3 and c == 0.1:
            assert np.mean(1 - 2 * special.ndtr(-hillis / 1.1**0.5)) < 0.925


def test_no_result_is_surer_than_the_paired_t_test():
    d = np.array([[0.5, 0.8, 0.4], [-0.1, 0.2, 0.05]])
    for shared in (0.0, 0.001, 0.1, 10.0):
        assert (judge_differences(d, shared).p >= stats.ttest_1samp(d, 0, axis=1).pvalue - 1e-12).all()
    np.testing.assert_allclose(judge_differences(d, -1.0).p, stats.ttest_1samp(d, 0, axis=1).pvalue)


def test_methods_that_predict_the_same_show_nothing():
    labels, ours, _ = made_up_runs("accuracy")
    found = compare_predictions("accuracy", labels, ours, ours.copy())
    assert np.isnan(found.p)
    assert np.isnan(found.low)
    scores = made_up_runs("pearson")
    assert compare_predictions("pearson", scores[0], scores[1], scores[1].copy()).reason == ALL_EQUAL
    assert np.isnan(judge_differences(np.array([0.1 + 0.2, 0.3, 0.3]), 0.5).p)  # equal but for rounding


def test_what_the_simulation_does_not_cover_gets_no_verdict():
    y, a, b = made_up_runs("f1")
    for labels, ours, theirs in (
        (y, a[:2], b[:2]), (y[:99], a[:, :99], b[:, :99]), (np.where(y == 0, np.nan, y), a, b), (y, a, b * 0),
        (y, np.vstack([a[:3], b[:1] * 0 + 1]), b), (y, y + 0 * a, y + 0 * b), (y * 0, a, b),
    ):  # fmt: skip
        found = compare_predictions("f1", labels, ours, theirs)
        assert (np.isnan(found.p), bool(found.reason)) == (True, True)
    y, a, b = made_up_runs("pearson")
    labels = np.where(np.arange(120) == 0, 1.0, 0.0)  # a third of the samples lack the only other value
    assert "undefined on some samples" in compare_predictions("pearson", labels, a, b).reason


@pytest.mark.parametrize("name", ["measured", "seeds matter most", "examples matter most"])
def test_intervals_hold_the_true_difference_in_simulated_studies(name):
    """600 studies: a coverage of 95% is counted with a standard deviation of 0.9%."""
    setting = simulated_pairs.SETTINGS[name]
    counts = simulated_pairs.simulate(setting, seeds=5, examples=200, studies=600, percentile_studies=100)
    for case in ("null", "planted"):
        assert counts[f"ours/{case}/said"] > 0.9
        assert 0.92 < counts[f"ours/{case}/coverage"] < 0.985
    assert counts["ours/null/below"] < 0.08
    assert counts["ours/planted/below"] > counts["ours/null/below"] + 0.1


def test_every_metric_that_the_report_compares_is_simulated():
    """A metric without simulated coverage must not be compared: add it to the simulation, or refuse it."""
    assert {"accuracy", *simulated_pairs.METRICS} == RESAMPLED_METRICS.keys()


@pytest.mark.parametrize("metric", ["f1", "pearson"])
def test_planted_differences_of_other_metrics_are_held(monkeypatch, metric):
    monkeypatch.setattr(simulated_pairs, "METRIC_RESAMPLES", 50)
    planted = 3.5  # about what find_true_difference gives for both
    counts = simulated_pairs.simulate_metric(metric, seeds=5, examples=200, studies=150, planted=planted)
    for case in ("null", "planted"):
        assert counts[f"{case}/said"] > 0.95
        assert counts[f"{case}/coverage"] > 0.89
    assert counts["null/below"] < 0.11
    assert counts["planted/below"] > counts["null/below"] + 0.1
