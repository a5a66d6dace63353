"""SIGReg: against the integral with complex numbers, and against its closed form; directions; what degenerates."""

import pytest
import torch
from helpers import value_and_gradient

from isobench.calibration import SIGReg


def vectors(rows, dim, seed=0):
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
    h, method = vectors(*shape), SIGReg(shape[1], strength=-0.7, directions=6, **settings).eval()
    directions = method.draw_directions(h)
    found = value_and_gradient(method.regularize, h)
    expected = value_and_gradient(lambda x: -0.7 * by_integral(x, directions, **settings), h)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_directions_are_units_drawn_anew_in_training_and_alike_everywhere():
    h, one, two = vectors(9, 5).float(), SIGReg(5, directions=7), SIGReg(5, directions=7)
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
