"""Isotropy metrics against plain definitions in NumPy."""

import math

import numpy as np
import pytest
import torch

from isobench.metrics import (
    explained_variance,
    partition_isotropy,
)


@pytest.mark.parametrize("shape", [(50, 8), (5, 12), (8, 8)])
def test_explained_variance_is_the_svds(shape):
    h = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1) + 7
    singular = np.linalg.svd(h - h.mean(0), compute_uv=False)
    for k in (1, 3, 5):
        expected = (singular[:k] ** 2).sum() / (singular**2).sum()
        assert explained_variance(torch.tensor(h), k) == pytest.approx(expected, abs=1e-12)
    assert explained_variance(torch.tensor(h), (1, 3)) == [explained_variance(torch.tensor(h), k) for k in (1, 3)]


@pytest.mark.parametrize("h", [torch.randn(1, 5), torch.zeros(4, 5), torch.full((4, 5), 1 / 3)])
def test_explained_variance_without_variance_is_undefined(h):
    assert math.isnan(explained_variance(h, 1))


def naive_isotropy(w: np.ndarray, symmetric: bool) -> tuple[float, float]:
    vectors = np.linalg.eigh(w.T @ w)[1].T
    vectors = [v if (w @ v).sum() >= 0 else -v for v in vectors]
    if symmetric:
        vectors += [-v for v in vectors]
    z = np.array([sum(math.exp(v @ row) for row in w) for v in vectors])
    return z.min() / z.max(), math.sqrt(((z - z.mean()) ** 2).sum() / (len(z) * z.mean() ** 2))


@pytest.mark.parametrize("directions", ["eigenvectors", "symmetric"])
@pytest.mark.parametrize("rows", [3, 40])
def test_partition_isotropy_is_the_definition(rows, directions):
    w = np.random.default_rng(1).normal(size=(rows, 6)) * np.linspace(0.2, 1.5, 6) + 0.1
    expected = naive_isotropy(w, directions == "symmetric")
    assert partition_isotropy(torch.tensor(w), directions) == pytest.approx(expected, rel=1e-9)


def test_partition_isotropy_does_not_overflow():
    i1, i2 = partition_isotropy(1e4 * torch.randn(50, 8))
    assert 0 <= i1 < 1e-6
    assert math.isfinite(i2)


def test_partition_isotropy_of_nothing_special():
    assert all(map(math.isnan, partition_isotropy(torch.zeros(4, 3))))  # without a direction
    i1, i2 = partition_isotropy(torch.randn(1, 3))
    assert 0 < i1 <= 1
    assert i2 >= 0
