"""The measures and the accumulator: against plain definitions in NumPy, in one piece and in many."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from isobench.metrics import (
    IsotropyAccumulator,
    average_cosine,
    coordinate_share,
    cosine_regularization,
    effective_rank,
    explained_variance,
    isoscore,
    local_isotropy,
    mean_ratio,
    partition_isotropy,
    spectrum,
)
from isobench.metrics.isotropy import isoscore_of
from isobench.metrics.partition import DIRECTION_KINDS, partition_isotropy_of


def vectors(rows=50, dim=8, seed=0, shift=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, dim)) @ rng.normal(size=(dim, dim)) + shift


def printed_isoscore(h: np.ndarray) -> float:
    """Rudman et al. 2022, Algorithm 1, step by step: PCA, normalised variances, defect, dimensions used, score."""
    d = h.shape[1]
    variance = np.linalg.svd(np.cov(h.T, ddof=1))[1]
    normal = math.sqrt(d) * variance / np.linalg.norm(variance)
    defect = np.linalg.norm(normal - np.ones(d)) / math.sqrt(2 * (d - math.sqrt(d)))
    used = (d - defect**2 * (d - math.sqrt(d))) ** 2 / d**2
    return (d * used - 1) / (d - 1)


@pytest.mark.parametrize("rows", [3, 8, 60])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4, 1e150])
def test_isoscore_is_its_algorithm(rows, size):
    h = vectors(rows)
    assert isoscore(torch.tensor(h * size)) == pytest.approx(printed_isoscore(h), rel=1e-9)


def test_isoscore_at_its_ends():
    eye = torch.eye(6, dtype=torch.float64)
    assert isoscore(torch.cat([eye, -eye])) == pytest.approx(1.0)
    line = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None] * torch.ones(6, dtype=torch.float64)
    assert isoscore(line) == pytest.approx(0.0, abs=1e-12)
    for nothing in (torch.zeros(4, 3), torch.full((4, 3), 0.1), torch.ones(1, 3), torch.randn(5, 1)):
        assert math.isnan(isoscore(nothing))


def test_isoscore_star_at_its_ends():  # between them: tests/calibration/test_istar.py
    h, target = torch.tensor(vectors(6)), torch.tensor(np.cov(vectors(500, seed=3).T))
    assert isoscore(h, 1.0) == pytest.approx(1.0)
    assert isoscore(h, 0.0, target) == pytest.approx(isoscore(h), rel=1e-12)
    assert isoscore(h[:1], 0.3, target) == pytest.approx(isoscore_of(target))


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e4, 1e30])
def test_cosines_are_those_of_all_pairs(size):
    w = vectors(20)
    pairs = 1 - pdist(w, "cosine")
    assert average_cosine(torch.tensor(w * size)) == pytest.approx(pairs.mean(), rel=1e-10)
    assert cosine_regularization(torch.tensor(w * size)) == pytest.approx(2 * pairs.sum() / 400, rel=1e-10)
    with_zero = np.vstack([w, np.zeros((3, 8))])
    assert average_cosine(torch.tensor(with_zero)) == pytest.approx(pairs.mean())
    assert cosine_regularization(torch.tensor(with_zero)) == pytest.approx(2 * pairs.sum() / 23**2)


def test_spectrum_effective_rank_and_mean_ratio():
    for h in (vectors(50), vectors(5)):
        singular = np.linalg.svd(h - h.mean(0), compute_uv=False)
        np.testing.assert_allclose(spectrum(torch.tensor(h)), singular, rtol=1e-9, atol=1e-6)
        raw = np.linalg.svd(h, compute_uv=False)
        np.testing.assert_allclose(spectrum(torch.tensor(h), centered=False), raw, rtol=1e-9)
        shares = singular[singular > 1e-9] / singular.sum()
        expected = math.exp(-sum(p * math.log(p) for p in shares))
        assert effective_rank(torch.tensor(h)) == pytest.approx(expected, rel=1e-5)
        ratio = np.linalg.norm(h.mean(0)) / np.linalg.norm(h, axis=1).mean()
        assert mean_ratio(torch.tensor(h)) == pytest.approx(ratio)
    assert effective_rank(torch.cat([torch.eye(4), -torch.eye(4)])) == pytest.approx(4.0)
    assert math.isnan(effective_rank(torch.ones(4, 3)))
    assert math.isnan(mean_ratio(torch.zeros(4, 3)))
    assert math.isnan(average_cosine(torch.ones(1, 3)))


def one_shot(h: torch.Tensor) -> dict[str, float]:
    measures = (isoscore, average_cosine, effective_rank, mean_ratio, coordinate_share)
    return {**{f"ev{k}": explained_variance(h, k) for k in (1, 2, 5)}, **{f.__name__: f(h) for f in measures}}


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(0, 99), st.sampled_from([0.0, 1.0, 1e4]))
def test_the_accumulator_equals_the_one_shot_functions(sizes, seed, shift):
    """Batches of any size, empty ones too; merged from two halves; a mean far off costs no digits."""
    h = torch.tensor(vectors(sum(sizes) + 20, seed=seed, shift=shift))
    parts = h.split([*sizes, 20])
    whole, first, second = (IsotropyAccumulator(8) for _ in range(3))
    for number, part in enumerate(parts):
        whole.update(part)
        (first if number % 2 else second).update(part)
    expected = one_shot(h)
    for found in (whole.compute((1, 2, 5)), first.merge(second).compute((1, 2, 5))):
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(whole.covariance, np.cov(h.numpy().T, ddof=0), rtol=1e-9, atol=1e-9)
    for directions in DIRECTION_KINDS:
        i = partition_isotropy_of(lambda: parts, whole.second_moment, whole.total, directions)
        assert i == pytest.approx(partition_isotropy(h, directions), rel=1e-6, abs=1e-12) or shift == 1e4


def test_the_accumulator_of_little():
    single = IsotropyAccumulator(3).update(torch.ones(1, 3)).compute((1,))
    assert {name for name, value in single.items() if not math.isnan(value)} == {"mean_ratio"}
    few = torch.tensor(vectors(3))
    assert IsotropyAccumulator(8).update(few).compute((1, 2, 5)) == pytest.approx(one_shot(few), rel=1e-6)


def test_local_isotropy_takes_every_clusters_centre_away():
    rng = np.random.default_rng(0)
    centres = np.array([[20.0, 0, 0, 0], [0, 20, 0, 0], [0, 0, 20, 0]])
    labels = rng.integers(3, size=90)
    noise = rng.normal(size=(90, 4))
    h = torch.tensor(centres[labels] + noise)
    assert average_cosine(h) > 0.3
    expected = torch.tensor(np.vstack([noise[labels == c] - noise[labels == c].mean(0) for c in range(3)]))
    found = local_isotropy(h, 3)
    assert found["average_cosine"] == pytest.approx(average_cosine(expected), abs=1e-9)
    assert (found["i1"], found["i2"]) == pytest.approx(partition_isotropy(expected), rel=1e-6)
    equal = np.repeat(rng.normal(size=(3, 5)), 9, 0)  # no vector differs from its cluster's centre
    assert all(map(math.isnan, local_isotropy(equal, 3).values()))


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


def test_partition_isotropy_of_large_zero_and_single_vectors():
    i1, i2 = partition_isotropy(1e4 * torch.randn(50, 8))
    assert 0 <= i1 < 1e-6
    assert math.isfinite(i2)
    assert all(map(math.isnan, partition_isotropy(torch.zeros(4, 3))))  # without a direction
    i1, i2 = partition_isotropy(torch.randn(1, 3))
    assert 0 < i1 <= 1
    assert i2 >= 0
