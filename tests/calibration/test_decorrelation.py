"""Decorrelation: against VICReg's two terms, entry by entry in float64, and on what degenerates."""

import math

import pytest
import torch
from helpers import value_and_gradient

from isobench.calibration import Decorrelation


def vectors(rows, dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, dim, generator=generator, dtype=torch.float64) @ torch.randn(
        dim, dim, generator=generator, dtype=torch.float64
    )


def by_entries(h, variance_weight=1.0, covariance_weight=0.04, gamma=1.0, epsilon=1e-4):
    """Eqs. 1 to 4, one entry of the covariance at a time; the mean has its gradient too."""
    rows, dim = h.shape
    mean = [sum(h[n, j] for n in range(rows)) / rows for j in range(dim)]
    hinge = covariances = 0.0
    for i in range(dim):
        for j in range(dim):
            entry = sum((h[n, i] - mean[i]) * (h[n, j] - mean[j]) for n in range(rows)) / (rows - 1)
            if i == j:
                hinge = hinge + torch.clamp(gamma - torch.sqrt(entry + epsilon), min=0) / dim
            else:
                covariances = covariances + entry**2 / dim
    return variance_weight * hinge + covariance_weight * covariances


@pytest.mark.parametrize(("rows", "dim"), [(2, 3), (9, 4), (4, 6)])
@pytest.mark.parametrize(
    "settings", [{}, {"variance_weight": 25.0, "covariance_weight": 1.0, "gamma": 2.0, "epsilon": 0.01}]
)
def test_value_and_gradient(rows, dim, settings):
    h = vectors(rows, dim) / 2
    h[:, 0] *= 0.1  # below the target, where others are above it
    found = value_and_gradient(Decorrelation(dim, strength=0.7, **settings).regularize, h)
    expected = value_and_gradient(lambda x: 0.7 * by_entries(x, **settings), h)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


def test_the_default_weights_are_in_the_papers_proportion():
    method = Decorrelation(3)
    assert method.variance_weight / method.covariance_weight == pytest.approx(25 / 1)


def test_uncorrelated_vectors_of_enough_variance_cost_nothing():
    h = 3 * torch.cat([torch.eye(4), -torch.eye(4)])
    value, gradient = value_and_gradient(Decorrelation(4).regularize, h)
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("row", [torch.zeros(3), torch.tensor([0.1, 2.0, -7.7])])
def test_equal_rows_have_no_variance_and_a_finite_gradient(row):
    value, gradient = value_and_gradient(Decorrelation(3).regularize, row.repeat(5, 1))
    assert float(value) == pytest.approx(1 - math.sqrt(1e-4))
    assert not gradient.any()


def test_one_row_has_no_covariance():
    assert Decorrelation(3).regularize(torch.randn(1, 3, requires_grad=True)) == 0
