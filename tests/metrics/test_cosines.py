"""Compute the levels of cosines by their definition, over all pairs, and a bootstrap that resamples rows."""

import numpy as np
import pytest
import torch

from isobench.metrics import cosines as module
from isobench.metrics.cosines import measure_level, measure_true


def make(n, d, seed):
    return np.random.default_rng(seed).normal(size=(n, d)) + 0.5


def cosines_of(x, y):
    return (x / np.linalg.norm(x, axis=1)[:, None]) @ (y / np.linalg.norm(y, axis=1)[:, None]).T


def check(level, cosines):
    assert level.quantiles == pytest.approx(np.quantile(cosines, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist(), abs=1e-12)
    for share, (value, low, high) in ((0.01, level.one_percent), (0.001, level.one_per_mille)):
        assert (cosines > value + 1e-12).mean() <= share < (cosines > value - 1e-12).mean()
        assert low <= value <= high


def test_random_pairs_are_all_pairs_of_different_rows():
    x = make(120, 7, 0)
    x[4] = 0  # has no cosine
    rows = np.delete(x, 4, 0)
    check(measure_level("none", torch.from_numpy(x)), cosines_of(rows, rows)[np.triu_indices(119, 1)])


def test_queries_with_documents_that_are_not_relevant():
    x, y = make(60, 7, 1), make(90, 7, 2)
    related = np.random.default_rng(3).random((60, 90)) < 0.1
    level = measure_level("none", torch.from_numpy(x), torch.from_numpy(y), related)
    check(level, cosines_of(x, y)[~related])
    true = np.linspace(0, 1, 101)
    assert measure_true(level, true).true == (true > level.one_percent[0]).mean()


def test_intervals_are_those_of_a_bootstrap_over_rows(monkeypatch):
    """Also far wider than a bootstrap over pairs would be."""
    x = make(150, 5, 4)
    monkeypatch.setattr(module, "RESAMPLES", 1500)
    _, low, high = measure_level("none", torch.from_numpy(x)).one_percent
    cosines, rng, resampled = cosines_of(x, x), np.random.default_rng(5), []
    for _ in range(800):
        drawn = rng.integers(150, size=150)
        i, j = np.triu_indices(150, 1)
        kept = drawn[i] != drawn[j]  # a row twice is no pair
        resampled.append(np.quantile(cosines[drawn[i], drawn[j]][kept], 0.99))
    expected = np.quantile(resampled, (0.025, 0.975))
    assert (low, high) == pytest.approx(expected, abs=0.2 * np.ptp(expected))


@pytest.mark.parametrize("x", [np.zeros((5, 3)), np.ones((1, 3)), np.full((4, 2), np.nan)])
def test_no_pairs_have_no_level(x):
    assert measure_level("none", torch.from_numpy(x)) is None


def test_one_coordinate_and_equal_rows():
    assert measure_level("none", torch.ones(9, 3).double()).one_percent == pytest.approx((1, 1, 1))
    x = torch.tensor([[1.0], [2], [-1], [-3]], dtype=torch.float64)
    assert measure_level("none", x).one_percent[0] == 1
