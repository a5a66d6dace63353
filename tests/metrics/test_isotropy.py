"""Isotropy metrics against plain definitions in NumPy."""

import math

import numpy as np
import pytest
import torch

from isobench.common.linalg import cosine, divide_by_length
from isobench.metrics import (
    explained_variance,
    isoscore,
    isotropy_summary,
    partition_isotropy,
)
from isobench.metrics.accumulator import class_summary
from isobench.metrics.isotropy import isoscore_of


@pytest.mark.parametrize("shape", [(50, 8), (5, 12), (8, 8)])
def test_explained_variance_is_the_svds(shape):
    h = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1) + 7
    singular = np.linalg.svd(h - h.mean(0), compute_uv=False)
    for k in (1, 3, 5):
        expected = (singular[:k] ** 2).sum() / (singular**2).sum()
        assert explained_variance(torch.tensor(h), k) == pytest.approx(expected, abs=1e-12)
    assert explained_variance(torch.tensor(h), (1, 3)) == [explained_variance(torch.tensor(h), k) for k in (1, 3)]


@pytest.mark.parametrize("dim", [2, 3, 32, 768])
def test_isoscore_of_one_direction_and_of_all_alike_is_in_its_range(dim):
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert 0 <= isoscore(rng.normal(size=(2, dim))) < 1e-12
    assert isoscore_of(torch.eye(dim, dtype=torch.float64) * rng.uniform()) <= 1
    assert math.isnan(isoscore(np.full((2, dim), np.nan)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cosines_and_unit_rows_do_not_depend_on_the_scale_to_the_bit(dtype):
    x, y = torch.randn(2, 50, 8, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for exponent in (0, -40, 100, *([] if dtype == torch.float32 else [-900, 900])):
        assert torch.equal(cosine(x * 2.0**exponent, y), torch.cosine_similarity(x, y))
        units = divide_by_length(x * 2.0**exponent)
        assert torch.equal(units, torch.nn.functional.normalize(x.double(), dim=-1))
    assert torch.equal(cosine(torch.zeros(1, 8), y[:1].float()), torch.zeros(1))
    tiny = torch.full((1, 4), 5e-324, dtype=torch.float64)
    assert divide_by_length(tiny).tolist() == [[0.5] * 4]


@pytest.mark.parametrize("h", [torch.randn(1, 5), torch.zeros(4, 5), torch.full((4, 5), 1 / 3)])
def test_explained_variance_without_variance_is_undefined(h):
    assert math.isnan(explained_variance(h, 1))


@pytest.mark.parametrize("offset", [0, 3, 1e4])
@pytest.mark.parametrize("scale", [1e-12, 1, 1e12])
@pytest.mark.parametrize("shape", [(2, 3), (40, 5), (5, 40), (300, 64)])
def test_every_measure_of_any_vectors_is_in_its_range(shape, scale, offset):
    """Vectors in all directions, in one, and, at a large offset, almost all the same."""
    generator = torch.Generator().manual_seed(0)
    lows = {"average_cosine": -1, "silhouette": -1, "effective_rank": 1}
    for rank in (1, shape[1]):
        h = torch.randn(shape[0], rank, generator=generator) @ torch.randn(rank, shape[1], generator=generator)
        h = scale * (h + offset)
        measures = isotropy_summary(lambda h=h: [h], (1, 2), ("eigenvectors", "symmetric", "as_printed"))
        for name, value in {**measures, **class_summary(h, torch.arange(shape[0]) % 2)}.items():
            high = math.inf if name.startswith(("effective_rank", "i2")) else 1
            assert math.isnan(value) or lows.get(name, 0) - 1e-6 <= value <= high + 1e-6, (name, value)


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
