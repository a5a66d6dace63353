"""Measures of spectra, pairs, tokens and words by frequency, against plain definitions in NumPy."""

import math

import numpy as np
import pytest
import torch
from helpers import fails
from scipy.spatial.distance import pdist

from isobench.calibration import Uniformity
from isobench.metrics import (
    IsotropyAccumulator,
    alignment,
    alpha_req,
    isoscore,
    mask_tokens,
    rankme,
    trimmed_isoscore,
    uniformity,
    weighted_isotropy,
)
from isobench.metrics.isotropy import alpha_req_of, gram_eigenvalues, rankme_of


def make_vectors(n=60, d=30, seed=0, mean=3.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -0.7 + mean * rng.normal(size=d)


@pytest.mark.parametrize("shape", [(60, 30), (12, 30), (30, 30)])
def test_rankme_is_the_entropy_of_uncentred_singular_values(shape):
    h = make_vectors(*shape)
    sigma = np.linalg.svd(h, compute_uv=False)
    p = sigma / sigma.sum() + 1e-7
    assert rankme(h) == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-6)
    assert rankme(torch.tensor(h, dtype=torch.float32)) == pytest.approx(rankme(h), rel=1e-4)
    assert rankme(np.outer(np.arange(1, 9), np.ones(5))) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("first", "last"), [(4, 100), (1, 30), (2, 9)])
def test_alpha_req_is_a_least_squares_slope(first, last, weighted):
    h = make_vectors(200, 40)
    values = np.sort(np.linalg.eigvalsh(np.cov(h.T)))[::-1]
    ranks = np.arange(first, min(last, 40) + 1)
    weights = 1 / ranks if weighted else np.ones(len(ranks))
    slope = np.polyfit(np.log(ranks), np.log(values[ranks - 1]), 1, w=np.sqrt(weights))[0]
    assert alpha_req(h, first, last, weighted) == pytest.approx(-slope, rel=1e-8)


def test_streams_give_the_same_numbers():
    h = make_vectors(100, 12)
    accumulator = IsotropyAccumulator(12)
    for piece in np.array_split(h, 7):
        accumulator.update(piece)
    assert rankme_of(gram_eigenvalues(accumulator.second_moment)) == pytest.approx(rankme(h), rel=1e-6)
    assert alpha_req_of(gram_eigenvalues(accumulator.scatter)) == pytest.approx(alpha_req(h), rel=1e-8)
    few = IsotropyAccumulator(30).update(make_vectors(9, 30))
    assert rankme_of(gram_eigenvalues(few.second_moment)[: few.count]) == pytest.approx(rankme(make_vectors(9, 30)))


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_alignment_is_the_mean_distance_of_unit_vectors(power):
    a, b = make_vectors(seed=2), make_vectors(seed=3)
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b)]
    expected = (np.linalg.norm(units[0] - units[1], axis=1) ** power).mean()
    assert alignment(a, b, power) == pytest.approx(expected, rel=1e-12)
    assert alignment(a, 7 * a) == pytest.approx(0, abs=1e-15)
    a[0] = 0  # no direction
    assert alignment(a, b, power) == pytest.approx((np.linalg.norm(units[0] - units[1], axis=1)[1:] ** power).mean())


@pytest.mark.parametrize("n", [2, 50, 5000])
def test_uniformity_is_the_papers_over_pairs(n):
    h = make_vectors(n, 6, mean=0.2)
    units = h / np.linalg.norm(h, axis=1, keepdims=True)
    expected = np.log(np.exp(-2 * pdist(units, "sqeuclidean")).mean())
    assert uniformity(h) == pytest.approx(expected, rel=1e-9)
    if n < 100:
        assert uniformity(h) == pytest.approx(Uniformity(6).regularize(torch.tensor(h)).item(), rel=1e-9)


def test_uniformity_of_one_direction_of_opposites_and_of_zero_rows():
    assert uniformity(np.ones((5, 3))) == pytest.approx(0, abs=1e-12)
    assert uniformity(np.array([[1.0, 2.0], [-1.0, -2.0]]), t=3) == pytest.approx(-12)
    h = make_vectors(20, 4)
    assert uniformity(np.concatenate([h, np.zeros((3, 4))])) == pytest.approx(uniformity(h), rel=1e-12)
    assert math.isnan(uniformity(np.array([[1.0, 0], [0, 0]])))


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_directions_do_not_depend_on_the_lengths(scale):
    a, b = make_vectors(seed=2), make_vectors(seed=3)
    assert uniformity(scale * a) == pytest.approx(uniformity(a), rel=1e-12)
    assert alignment(scale * a, b) == pytest.approx(alignment(a, b), rel=1e-12)


def test_vectors_without_variance_or_without_length_give_no_number():
    assert math.isnan(alpha_req(np.ones((10, 8))))
    assert math.isnan(alpha_req(make_vectors(3, 8)))  # two ranks with variance, and ranks are fitted from 4 on
    assert all(math.isnan(f(np.zeros((4, 3)))) for f in (rankme, uniformity))
    assert math.isnan(alignment(np.zeros((4, 3)), np.ones((4, 3))))


def test_masks_leave_out_what_is_named():
    states = np.ones((8, 4))
    states[5] *= 100  # a massive activation
    positions, special = np.array([0, 1, 2, 3, 0, 1, 2, 3]), np.array([1, 0, 0, 1, 0, 0, 0, 0], bool)
    kept = {
        (): [0, 1, 2, 3, 4, 5, 6, 7], ("first",): [1, 2, 3, 5, 6, 7], ("special",): [1, 2, 4, 5, 6, 7],
        ("outlying",): [0, 1, 2, 3, 4, 6, 7], ("first", "special", "outlying"): [1, 2, 6, 7],
    }  # fmt: skip
    for without, expected in kept.items():
        assert mask_tokens(states, positions, special, without).nonzero()[:, 0].tolist() == expected


def test_trimmed_isoscore_is_that_of_the_nearest_vectors():
    rng = np.random.default_rng(0)
    x = rng.standard_t(2, (300, 5)) * [5, 1, 1, 1, 0.2] + 7
    distances = np.linalg.norm(x - np.sort(x, axis=0)[(len(x) - 1) // 2], axis=1)  # torch takes the lower median
    kept = x[np.argsort(distances)[: 300 - 9]]
    covariance = np.cov(kept.T)
    expected = (np.trace(covariance) ** 2 / (covariance**2).sum() - 1) / 4
    assert trimmed_isoscore(x, 0.03) == pytest.approx(expected)
    assert trimmed_isoscore(torch.tensor(x), 0) == pytest.approx(isoscore(x))
    assert trimmed_isoscore(3 * x - 4, 0.03) == pytest.approx(expected)


def test_trimmed_isoscore_of_nothing_special():
    assert math.isnan(trimmed_isoscore(np.ones((10, 3))))
    assert math.isnan(trimmed_isoscore(np.ones((1, 3))))
    x = np.random.default_rng(0).normal(size=(100, 3))
    assert trimmed_isoscore(x, 0.07) == trimmed_isoscore(x, 0.065)  # seven of a hundred
    assert math.isnan(trimmed_isoscore(np.array([[1.0, math.nan], [2, 3], [4, 5]])))


RNG = np.random.default_rng(0)
W = RNG.normal(size=(50, 6)) @ RNG.normal(size=(6, 6)) + 1.5
COUNTS = RNG.zipf(1.5, size=50) - 1  # some words do not occur


def test_a_count_repeats_a_row():
    assert (COUNTS == 0).any()
    repeated = IsotropyAccumulator(6).update(W.repeat(COUNTS, axis=0)).compute()
    found = weighted_isotropy(W, COUNTS)
    del repeated["average_cosine"]  # there it has pairs of equal rows
    assert {name: found[name] for name in repeated} == pytest.approx(repeated, rel=1e-9)
    p = COUNTS / COUNTS.sum()
    assert found["mean_norm"] == pytest.approx(np.linalg.norm(p @ W), rel=1e-12)
    assert found["average_norm"] == pytest.approx(p @ np.linalg.norm(W, axis=1), rel=1e-12)
    assert found["mean_ratio"] == pytest.approx(found["mean_norm"] / found["average_norm"], rel=1e-12)
    assert found["isoscore"] != pytest.approx(isoscore(W), rel=1e-2)


def test_the_average_cosine_is_that_of_two_draws():
    w, counts = np.vstack([W, np.zeros((2, 6))]), np.append(COUNTS, [4, 0])
    units = W / np.linalg.norm(W, axis=1, keepdims=True)
    expected = np.average(units @ units.T, weights=np.outer(COUNTS, COUNTS) * (1 - np.eye(50)))
    assert weighted_isotropy(w, counts)["average_cosine"] == pytest.approx(expected, rel=1e-10)
    one = np.zeros(52)
    one[3] = 5
    assert math.isnan(weighted_isotropy(w, one)["average_cosine"])
    assert math.isnan(weighted_isotropy(w, one)["isoscore"])


@pytest.mark.parametrize(
    "weights",
    [np.ones(49), np.zeros(50), np.append(np.ones(49), -1), np.append(np.ones(49), np.nan), np.full(50, 1e308)],
)
def test_wrong_weights_are_refused(weights):
    with fails():
        weighted_isotropy(W, weights)
