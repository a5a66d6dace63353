"""The penalties against their definitions in float64, pair by pair and entry by entry, and on what degenerates."""

import math

import pytest
import torch
from helpers import value_and_gradient

from isobench.calibration import CosineRegularization, Decorrelation, SIGReg, SpectrumControl, Uniformity


def matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.3


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1e18, 1e30])
@pytest.mark.parametrize("function", [CosineRegularization(4).penalty, Uniformity(4).regularize])
def test_lengths_do_not_matter_however_small_or_large_in_float32(function, size):
    h = matrix(6, 4).float()
    value, gradient = value_and_gradient(function, h * size)
    expected, expected_gradient = value_and_gradient(function, h)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient * size, expected_gradient, rtol=1e-4, atol=1e-6)


MIXED = [CosineRegularization(16).penalty, SpectrumControl(16, c1=2.0).penalty]
MIXED += [method.regularize for method in (Decorrelation(16), SIGReg(16).eval(), Uniformity(16))]


@pytest.mark.parametrize("function", MIXED)
def test_losses_under_mixed_precision_are_those_of_full_precision(function):
    x = matrix(30, 16).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        value, gradient = value_and_gradient(function, x)
    assert (value.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)
    expected, expected_gradient = value_and_gradient(function, x.float())
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.float(), expected_gradient, rtol=0.01, atol=1e-3)


def by_pairs(h, t=2.0):
    """log of the mean over i < j of exp(-t |u_i - u_j|^2), one pair at a time; zero rows are in no pair."""
    units = [row / row.norm() for row in h if row.any()]
    pairs = [torch.exp(-t * ((units[i] - units[j]) ** 2).sum()) for j in range(len(units)) for i in range(j)]
    return torch.log(sum(pairs) / len(pairs))


@pytest.mark.parametrize("shape", [(2, 3), (7, 4), (12, 2)])
@pytest.mark.parametrize(("strength", "t"), [(1.0, 2.0), (-0.3, 0.5), (2.0, 300.0)])
def test_uniformity_value_and_gradient(shape, strength, t):
    h = matrix(*shape)
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
        (torch.ones(1, 3), 0.0), (torch.zeros(4, 3), 0.0), (torch.full((5, 3), 0.7), 0.0),  # no pair; all alike
        (torch.eye(3)[:1].repeat(2, 1) * torch.tensor([[0.0], [1.0]]), 0.0),  # one row with a direction
        (torch.tensor([[1.0, 0, 0], [-2.0, 0, 0]]), -8.0),  # opposites: the smallest, -4t
    ],
)  # fmt: skip
def test_the_ends_and_batches_without_a_pair(h, expected):
    value, gradient = value_and_gradient(Uniformity(3).regularize, h)
    assert float(value) == pytest.approx(expected, abs=1e-5)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-5)


def test_a_vector_that_is_not_finite_makes_the_loss_so():
    for wrong in (math.nan, math.inf):
        assert not Uniformity(2).regularize(torch.tensor([[1.0, 2.0], [wrong, 1.0], [0.0, 1.0]])).isfinite()


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
def test_decorrelation_value_and_gradient(rows, dim, settings):
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(n, dim, generator=generator, dtype=torch.float64) for n in (rows, dim))
    h = left @ right / 2
    h[:, 0] *= 0.1  # below the target, where others are above it
    found = value_and_gradient(Decorrelation(dim, strength=0.7, **settings).regularize, h)
    expected = value_and_gradient(lambda x: 0.7 * by_entries(x, **settings), h)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("row", [torch.zeros(3), torch.tensor([0.1, 2.0, -7.7])])
def test_equal_rows_have_no_variance_and_a_finite_gradient(row):
    value, gradient = value_and_gradient(Decorrelation(3).regularize, row.repeat(5, 1))
    assert float(value) == pytest.approx(1 - math.sqrt(1e-4))
    assert not gradient.any()


def make_rows(rows, dim, seed=0):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 1.5 + 0.3


def by_integral(h, directions, points=17, t_max=5.0):
    """LeJEPA's Algorithm 1 as printed: complex numbers, over the whole range, one direction at a time."""
    t = torch.linspace(-t_max, t_max, points, dtype=torch.float64)
    normal = torch.exp(-(t**2) / 2)
    total = 0.0
    for direction in directions.T:
        characteristic = torch.exp(1j * (h @ direction)[:, None] * t).mean(0)
        total = total + len(h) * torch.trapezoid((characteristic - normal).abs() ** 2 * normal, t)
    return total / directions.shape[1]


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (20, 5)])
@pytest.mark.parametrize("settings", [{}, {"points": 5, "t_max": 2.0}])
def test_value_and_gradient(shape, settings):
    h, method = make_rows(*shape), SIGReg(shape[1], strength=-0.7, directions=6, **settings).eval()
    directions = method.draw_directions(h)
    found = value_and_gradient(method.regularize, h)
    expected = value_and_gradient(lambda x: -0.7 * by_integral(x, directions, **settings), h)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_directions_are_units_drawn_anew_in_training_and_alike_everywhere():
    h, one, two = make_rows(9, 5).float(), SIGReg(5, directions=7), SIGReg(5, directions=7)
    before = torch.random.get_rng_state()
    first = one.draw_directions(h)
    torch.testing.assert_close(first.norm(dim=0), torch.ones(7))
    values = [float(one.regularize(h)) for _ in range(4)]
    assert len(set(values)) == 4
    assert [float(two.regularize(h)) for _ in range(2)] == values[:2]
    resumed = SIGReg(5, directions=7)
    resumed.load_state_dict(two.state_dict())
    assert [float(resumed.regularize(h)) for _ in range(2)] == values[2:]
    resumed.eval()
    assert resumed.regularize(h) == resumed.regularize(h) == one.regularize(h)
    assert torch.equal(torch.random.get_rng_state(), before)  # no other random number changes


@pytest.mark.parametrize("row", [torch.zeros(3), torch.tensor([0.1, 2.0, -7.7]), torch.full((3,), 1e20)])
def test_equal_rows_stay_finite(row):
    value, gradient = value_and_gradient(SIGReg(3).regularize, row.repeat(5, 1))
    assert value.isfinite()
    assert gradient.isfinite().all()
