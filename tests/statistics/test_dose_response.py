"""Test the statistics of a dose-response study against scipy and against formulas written out."""

import math

import numpy as np
import pytest
from scipy import stats

from isobench.statistics.dose_response import average_over_seeds, correlate_partially, judge_equivalence

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("values", [[], [math.nan], [1.5], [2.0, 2.0, 2.0], [0.1 + 0.2, 0.3]])
def test_without_spread_there_is_no_interval(values):
    found = average_over_seeds(np.array(values))
    assert all(map(math.isnan, (found.p, found.low, found.high)))


@pytest.mark.parametrize("mean", [0, 0.4, -0.4, 0.99, 3])
def test_equivalence_is_two_one_sided_tests(mean):
    values = RNG.normal(size=10)
    values += mean - values.mean()
    p, low, high = judge_equivalence(values, 1)
    below, above = (stats.ttest_1samp(values, x, alternative=way).pvalue for x, way in ((-1, "greater"), (1, "less")))
    assert p == pytest.approx(max(below, above), rel=1e-9)
    assert (low, high) == pytest.approx(tuple(stats.ttest_1samp(values, 0).confidence_interval(0.9)), rel=1e-9)
    assert (p < 0.05) == (max(-low, high) < 1)
    assert all(map(math.isnan, judge_equivalence(np.full(4, 0.1), 1)))


def test_given_one_variable_it_is_the_textbooks_partial_correlation():
    x, y, z = RNG.normal(size=(3, 12))
    ranks = [stats.rankdata(v) for v in (x, y, z)]
    xy, xz, yz = (np.corrcoef(ranks[i], ranks[j])[0, 1] for i, j in ((0, 1), (0, 2), (1, 2)))
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert float(correlate_partially(x, y, ranks[2][:, None])) == pytest.approx(expected, rel=1e-12)


def test_given_the_method_only_differences_within_methods_count():
    method = np.repeat(np.eye(2), 6, axis=0)  # [12, 2]; linearly dependent with the constant
    x = np.concatenate([np.arange(6), 100 + np.arange(6)]).astype(float)
    y = np.concatenate([np.arange(6), -100 + np.arange(6)]).astype(float)
    assert correlate_partially(x, y) < 0
    assert float(correlate_partially(x, y, method)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("x", "given"),
    [
        (np.ones(8), None),  # nothing varies
        (np.arange(8.0), np.arange(8.0)[:, None]),  # nothing is left of x
        (np.arange(8.0), np.eye(8)[:, :5]),  # two degrees of freedom are left
    ],
)
def test_where_nothing_is_left_there_is_no_correlation(x, given):
    assert math.isnan(correlate_partially(x, RNG.normal(size=8), given))
