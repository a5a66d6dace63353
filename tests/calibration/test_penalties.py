"""Cosine regularisation, spectrum control, gradient normalisation: against definitions in float64, pair by pair."""

import math

import pytest
import torch
from helpers import value_and_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

from isobench.calibration import CosineRegularization, Decorrelation, SIGReg, SpectrumControl, Uniformity

SHAPES = [(2, 5), (3, 3), (7, 4), (40, 6), (5, 40)]


def matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.3


def pairwise(weight: torch.Tensor) -> torch.Tensor:
    """The definition: every ordered pair, one at a time."""
    total = weight.new_zeros(())
    for i in range(len(weight)):
        for j in range(len(weight)):
            if i != j and weight[i].any() and weight[j].any():
                total = total + weight[i] @ weight[j] / (weight[i].norm() * weight[j].norm())
    return total / len(weight) ** 2


@pytest.mark.parametrize(
    "rows",
    [
        [[1.0, 2.0], [0.0, 0.0], [3.0, -1.0]],  # a zero row
        [[1.0, 2.0], [1.0, 2.0], [2.0, 4.0]],  # duplicates
        [[1.0, 0.0], [-1.0, 0.0]],  # opposites: s = 0
        [[3.0, 4.0]],  # one row: no pair
        [[0.0, 0.0], [0.0, 0.0]],  # nothing at all
    ],
)
def test_cosine_of_degenerate_matrices(rows):
    weight = torch.tensor(rows, dtype=torch.float64)
    value, gradient = value_and_gradient(CosineRegularization(2).penalty, weight)
    leaf = weight.clone().requires_grad_()
    expected = pairwise(leaf)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=1e-14)
    if expected.requires_grad:
        expected.backward()
        torch.testing.assert_close(gradient, leaf.grad, rtol=1e-10, atol=1e-14)
    else:
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1.0, 1e18, 1e30])
def test_cosine_of_tiny_and_huge_rows_in_float32(size):
    weight = matrix(6, 4).float()
    value, gradient = value_and_gradient(CosineRegularization(4).penalty, weight * size)
    expected, expected_gradient = value_and_gradient(CosineRegularization(4).penalty, weight)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(gradient * size, expected_gradient, rtol=1e-4, atol=1e-7)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.floats(1e-3, 1e3), min_size=5, max_size=5), st.integers(0, 1000))
def test_cosine_does_not_see_the_rows_lengths(lengths, seed):
    weight = matrix(5, 3, seed)
    scaled = weight * torch.tensor(lengths, dtype=torch.float64)[:, None]
    penalty = CosineRegularization(3).penalty
    torch.testing.assert_close(penalty(scaled), penalty(weight), rtol=1e-9, atol=1e-12)
    gradient = value_and_gradient(penalty, scaled)[1]
    torch.testing.assert_close((gradient * scaled).sum(1), torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-12)


def by_svd(weight: torch.Tensor, decay: str, c1: float, c2: float, gamma: float) -> torch.Tensor:
    """The definition, singular value by singular value, through torch's own differentiable SVD."""
    total = weight.new_zeros(())
    for k, sigma in enumerate(torch.linalg.svdvals(weight), 1):
        target = c1 * k**gamma if decay == "polynomial" else c1 * math.exp(-c2 * k**gamma)
        total = total + (sigma - target) ** 2
    return total


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("decay", "constants"),
    [("polynomial", {"c1": 3.0, "gamma": -0.5}), ("exponential", {"c1": 3.0, "c2": 0.4, "gamma": 1.2})],
)
def test_spectrum_value_and_gradient(shape, decay, constants):
    weight = matrix(*shape, seed=1)
    control = SpectrumControl(shape[1], decay, strength=0.3, **constants)
    value, gradient = value_and_gradient(control.penalty, weight)
    full = {"c2": 1.0, **constants}
    expected, expected_gradient = value_and_gradient(lambda w: 0.3 * by_svd(w, decay, **full), weight)
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-8)  # the value is handed on as float32
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-7, atol=1e-9)


def test_spectrum_of_repeated_and_zero_singular_values():
    for weight in (torch.eye(4, dtype=torch.float64) * 2, torch.ones(6, 3, dtype=torch.float64)):
        control = SpectrumControl(weight.shape[1], "exponential", c1=0.0)  # every target 0: R = |W|_F^2
        value, gradient = value_and_gradient(control.penalty, weight)
        torch.testing.assert_close(value.double(), weight.square().sum(), rtol=1e-6, atol=0)
        torch.testing.assert_close(gradient, 2 * weight, rtol=1e-8, atol=1e-8)
    value, gradient = value_and_gradient(SpectrumControl(3, c1=1.0).penalty, torch.zeros(5, 3, dtype=torch.float64))
    assert float(value) == pytest.approx(1 + 1 / 4 + 1 / 9)
    assert not gradient.any()


def test_spectrum_starts_from_the_matrixs_own_first_singular_value_and_remembers_it():
    weight = matrix(5, 3).float()
    control = SpectrumControl(3)
    first = control.penalty(weight)
    sigma = torch.linalg.svdvals(weight.double())
    target = sigma[0] / torch.arange(1, 4)
    torch.testing.assert_close(first.double(), (sigma - target).square().sum(), rtol=1e-5, atol=1e-8)
    control.penalty(weight * 9)
    other = SpectrumControl(3)
    other.load_state_dict(control.state_dict())
    torch.testing.assert_close(other.penalty(weight), first)


def test_penalties_under_mixed_precision_are_those_of_full_precision():
    for method in (CosineRegularization(16), SpectrumControl(16, c1=2.0)):
        weight = matrix(30, 16).float()
        value, gradient = value_and_gradient(method.penalty, weight)
        with torch.autocast("cpu", torch.bfloat16):
            mixed, mixed_gradient = value_and_gradient(method.penalty, weight)
        assert mixed.dtype == torch.float32
        torch.testing.assert_close(mixed, value)
        torch.testing.assert_close(mixed_gradient, gradient)


@pytest.mark.parametrize("method", [Decorrelation(8), SIGReg(8).eval(), Uniformity(8)])
def test_regularisers_compute_in_float32_under_mixed_precision(method):
    h = matrix(16, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        value, gradient = value_and_gradient(method.regularize, h)
    assert (value.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)
    expected, expected_gradient = value_and_gradient(method.regularize, h.float())
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.float(), expected_gradient, rtol=0.01, atol=1e-3)
