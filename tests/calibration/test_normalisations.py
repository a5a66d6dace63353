"""Whitening by degrees, what degenerates, and precision; test_official_implementations.py has the formulas."""

import pytest
import torch

from isobench.calibration import BatchNorm, FixedNorm, Whitening
from isobench.metrics import isoscore


def vectors(rows, dim):
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(dim, dim, generator=generator)
    return torch.randn(rows, dim, generator=generator) @ mix + 2


def test_epsilon_is_a_dial_from_full_whitening_to_none():
    h = vectors(40, 4)
    full = Whitening(4, momentum=1.0)(h)
    assert torch.equal(Whitening(4, momentum=1.0, epsilon=0)(h), full)
    assert torch.equal(Whitening(4, momentum=1.0, epsilon=None)(h), full)
    hardly = Whitening(4, momentum=1.0, epsilon=1e8)(h) * 1e4
    torch.testing.assert_close(hardly, h - h.mean(0), rtol=1e-3, atol=1e-3)
    scores = [isoscore(Whitening(4, momentum=1.0, epsilon=e)(h)) for e in (0, 0.1, 1, 10, 100)]
    assert scores == sorted(scores, reverse=True)
    white = Whitening(4, momentum=1.0, shrinkage=0)(h)
    torch.testing.assert_close(white.T @ white / 40, torch.eye(4), rtol=0, atol=1e-4)
    kept = Whitening(4, momentum=1.0, epsilon=0.1, keep_norm=True)(h)
    assert kept.square().sum().item() == pytest.approx(h.square().sum().item(), rel=1e-5)  # of this batch's norms
    few = torch.tensor([[1.0, 0, 0], [0, 1, 0]])  # two directions without variance
    assert Whitening(3, shrinkage=0, epsilon=0.1)(few).isfinite().all()


@pytest.mark.parametrize("h", [torch.ones(4, 3), torch.zeros(4, 3), torch.ones(1, 3), torch.eye(3) * 1e15])
@pytest.mark.parametrize(
    "method", [Whitening(3, shrinkage=0), Whitening(3, epsilon=0.1), Whitening(3, shrinkage=0, keep_norm=True)]
)
def test_degenerate_batches_stay_finite(h, method):
    leaf = h.clone().requires_grad_()
    out = method(leaf)
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("method", [BatchNorm(8), Whitening(8), FixedNorm(8)])
def test_statistics_are_float32_under_mixed_precision(method):
    h = vectors(16, 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = method(h.bfloat16())
    assert out.dtype == torch.bfloat16
    assert all(not v.is_floating_point() or v.dtype == torch.float32 for v in method.state_dict().values())
    torch.testing.assert_close(out.float(), type(method)(8)(h), rtol=0.1, atol=0.1)
