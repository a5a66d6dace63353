"""Uniformity: against Wang & Isola's mean over pairs, pair by pair in float64, and on what degenerates."""

import math

import pytest
import torch
from helpers import value_and_gradient

from isobench.calibration import Uniformity


def vectors(rows, dim, seed=0):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.3


def by_pairs(h, t=2.0):
    """log of the mean over i < j of exp(-t |u_i - u_j|^2), one pair at a time; zero rows are in no pair."""
    units = [row / row.norm() for row in h if row.any()]
    pairs = [torch.exp(-t * ((units[i] - units[j]) ** 2).sum()) for j in range(len(units)) for i in range(j)]
    return torch.log(sum(pairs) / len(pairs))


@pytest.mark.parametrize("shape", [(2, 3), (7, 4), (12, 2)])
@pytest.mark.parametrize(("strength", "t"), [(1.0, 2.0), (-0.3, 0.5), (2.0, 300.0)])
def test_value_and_gradient(shape, strength, t):
    h = vectors(*shape)
    found = value_and_gradient(Uniformity(shape[1], strength, t).regularize, h)
    expected = value_and_gradient(lambda x: strength * by_pairs(x, t), h)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_duplicates_and_zero_rows():
    h = torch.tensor([[1.0, 2.0], [0.0, 0.0], [2.0, 4.0], [1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
    value, gradient = value_and_gradient(Uniformity(2).regularize, h)
    expected, expected_gradient = value_and_gradient(by_pairs, h)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-14)
    assert not gradient[1].any()


@pytest.mark.parametrize(
    ("h", "expected"),
    [
        (torch.ones(1, 3), 0.0),  # no pair
        (torch.zeros(4, 3), 0.0),
        (torch.eye(3)[:1].repeat(2, 1) * torch.tensor([[0.0], [1.0]]), 0.0),  # one row with a direction
        (torch.full((5, 3), 0.7), 0.0),  # all alike: the largest value
        (torch.tensor([[1.0, 0, 0], [-2.0, 0, 0]]), -8.0),  # opposites: the smallest, -4t
    ],
)
def test_the_ends_and_batches_without_a_pair(h, expected):
    value, gradient = value_and_gradient(Uniformity(3).regularize, h)
    assert float(value) == pytest.approx(expected, abs=1e-5)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_lengths_do_not_matter_however_small_or_large(size):
    h = vectors(6, 4).float()
    value, gradient = value_and_gradient(Uniformity(4).regularize, h * size)
    expected, expected_gradient = value_and_gradient(Uniformity(4).regularize, h)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient * size, expected_gradient, rtol=1e-3, atol=1e-6)


def test_a_vector_that_is_not_finite_makes_the_loss_so():
    for wrong in (math.nan, math.inf):
        assert not Uniformity(2).regularize(torch.tensor([[1.0, 2.0], [wrong, 1.0], [0.0, 1.0]])).isfinite()
