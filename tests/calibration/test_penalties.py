"""Cosine regularisation, spectrum control, gradient normalisation: against definitions in float64, pair by pair."""

import math

import pytest
import torch
from helpers import value_and_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

from isobench.calibration import CosineRegularization, GradientNorm, SpectrumControl

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


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_cosine_is_the_mean_over_pairs(shape):
    weight = matrix(*shape)
    value, gradient = value_and_gradient(CosineRegularization(shape[1], strength=0.7).penalty, weight)
    expected, expected_gradient = value_and_gradient(lambda w: 0.7 * pairwise(w), weight)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-14)


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


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 1000))
def test_spectrum_gradient_matches_finite_differences(rows, columns, seed):
    weight = matrix(rows, columns, seed)
    control = SpectrumControl(columns, c1=2.0, gamma=-1.0)
    gradient = value_and_gradient(control.penalty, weight)[1]
    direction = matrix(rows, columns, seed + 1)
    step = 1e-6

    def definition(w):
        return by_svd(w, "polynomial", 2.0, 1.0, -1.0)

    slope = (definition(weight + step * direction) - definition(weight - step * direction)) / (2 * step)
    assert float((gradient * direction).sum()) == pytest.approx(float(slope), rel=1e-4, abs=1e-6)


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


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_gradient_norm_is_its_formula_backward_and_the_identity_forward(alpha, rows):
    h, upstream = matrix(rows, 4).requires_grad_(), matrix(rows, 4, seed=5)
    method = GradientNorm(4, alpha=alpha, eps=1e-6)
    out = method(h)
    assert torch.equal(out, h)
    out.backward(upstream)
    mu = [sum(abs(float(upstream[i, j])) for i in range(rows)) / rows for j in range(4)]
    mean = sum(mu) / 4
    for j in range(4):
        expected = upstream[:, j] * (mean / (mu[j] + 1e-6 * mean)) ** alpha
        torch.testing.assert_close(h.grad[:, j], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e30])
def test_gradient_norm_of_vanishing_and_exploding_gradients(size):
    h = torch.ones(3, 2, requires_grad=True)
    GradientNorm(2)(h).backward(torch.tensor([[size, 0.0]] * 3))
    assert torch.isfinite(h.grad).all()
    assert torch.equal(h.grad[:, 1], torch.zeros(3))
    torch.testing.assert_close(h.grad[:, 0], torch.full((3,), size / 2), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (CosineRegularization, {"strength": -1}, "strength must be"),
        (SpectrumControl, {"decay": "linear"}, "decay must be polynomial or exponential"),
        (SpectrumControl, {"c1": -1}, "c1 must be"),
        (SpectrumControl, {"start_at_target": "maybe"}, "start_at_target must be true or false, not 'maybe'"),
        (SpectrumControl, {"start_at_target": "false"}, "start_at_target must be"),
        (SpectrumControl, {"start_at_target": 2}, "start_at_target must be"),
        (SpectrumControl, {"start_at_target": None}, "start_at_target must be"),
        (GradientNorm, {"eps": 0}, "eps above 0"),
        (GradientNorm, {"alpha": float("nan")}, "alpha must be"),
    ],
)
def test_settings_are_checked(method, settings, message):
    with pytest.raises(ValueError, match=message):
        method(4, **settings)
