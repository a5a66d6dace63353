"""Isotropy of words by their frequency: the measures of all words alike, repeated rows, and plain definitions."""

import math

import numpy as np
import pytest
from helpers import fails

from isobench.metrics import IsotropyAccumulator, isoscore, weighted_isotropy

RNG = np.random.default_rng(0)
W = RNG.normal(size=(50, 6)) @ RNG.normal(size=(6, 6)) + 1.5
COUNTS = RNG.zipf(1.5, size=50) - 1  # some words do not occur


def test_with_equal_weights_they_are_the_plain_measures():
    plain = IsotropyAccumulator(6).update(W).compute()
    for weight in (1.0, 0.3):
        found = weighted_isotropy(W, np.full(50, weight))
        assert {name: found[name] for name in plain} == pytest.approx(plain, rel=1e-9)


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
    total = weight = 0.0
    for i in range(50):
        for j in range(50):
            if i != j:
                total += COUNTS[i] * COUNTS[j] * (units[i] @ units[j])
                weight += COUNTS[i] * COUNTS[j]
    assert weighted_isotropy(w, counts)["average_cosine"] == pytest.approx(total / weight, rel=1e-10)
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
