"""BatchNorm, FixedNorm, Whitening: against their formulas in float64, over several steps, and on what degenerates."""

import numpy as np
import pytest
import torch

from isobench.calibration import BatchNorm, FixedNorm, Whitening
from isobench.metrics import isoscore


def batches(count, rows, dim, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(dim, dim, generator=generator)
    return [(torch.randn(rows, dim, generator=generator) @ mix + 2).to(dtype) for _ in range(count)]


def inverse_root(covariance, shrinkage, form, k, epsilon):
    """U diag(1/sqrt(s + epsilon)) U^T, or U diag(1/sqrt(s + epsilon)): by numpy's SVD."""
    d = len(covariance)
    sigma = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    u, s, _ = np.linalg.svd(sigma)
    scale = np.diag((s + (epsilon or 0)) ** -0.5)
    return u @ scale @ u.T if form == "zca" else (u @ scale)[:, :k]


@pytest.mark.parametrize(("form", "k"), [("zca", None), ("pca", None), ("pca", 2)])
@pytest.mark.parametrize(
    ("shrinkage", "epsilon", "keep_norm"), [(0.05, None, None), (0.0, 0.3, False), (0.05, 20.0, True), (0.0, 0, True)]
)
def test_whitening_forward_gradient_and_state(form, k, shrinkage, epsilon, keep_norm):
    method = Whitening(4, form, k, momentum=0.2, shrinkage=shrinkage, epsilon=epsilon, keep_norm=keep_norm)
    assert method.out_dim == (k or 4)
    mean = covariance = None
    for h in batches(4, 9, 4):
        leaf = h.clone().requires_grad_()
        out = method(leaf)
        out.sum().backward()
        x = h.double().numpy()
        centre, spread = x.mean(0), np.cov(x.T, ddof=0)
        mean = centre if mean is None else 0.8 * mean + 0.2 * centre
        covariance = spread if covariance is None else 0.8 * covariance + 0.2 * spread
        transform = inverse_root(covariance, shrinkage, form, k, epsilon)
        if keep_norm:
            before = np.trace(covariance) + mean @ mean
            transform = transform * np.sqrt(before / np.trace(transform.T @ covariance @ transform))
        expected, found = (x - mean) @ transform, out.detach().double().numpy()
        signs = np.ones(found.shape[1]) if form == "zca" else np.sign((found * expected).sum(0))
        np.testing.assert_allclose(found * signs, expected, atol=1e-4)
        gradient = (transform * signs).sum(1)  # the statistics carry none
        np.testing.assert_allclose(leaf.grad.numpy(), np.broadcast_to(gradient, (9, 4)), atol=1e-4)
    state = {name: value.clone() for name, value in method.state_dict().items()}
    method.eval()
    assert torch.equal(method(h), out.detach())
    assert all(torch.equal(state[name], value) for name, value in method.state_dict().items())


def test_epsilon_is_a_dial_from_full_whitening_to_none():
    (h,) = batches(1, 40, 4)
    full = Whitening(4, momentum=1.0)(h)
    assert torch.equal(Whitening(4, momentum=1.0, epsilon=0)(h), full)
    assert torch.equal(Whitening(4, momentum=1.0, epsilon=None)(h), full)
    hardly = Whitening(4, momentum=1.0, epsilon=1e8)(h) * 1e4
    torch.testing.assert_close(hardly, h - h.mean(0), rtol=1e-3, atol=1e-3)
    scores = [isoscore(Whitening(4, momentum=1.0, epsilon=e)(h)) for e in (0, 0.1, 1, 10, 100)]
    assert scores == sorted(scores, reverse=True)
    kept = Whitening(4, momentum=1.0, epsilon=0.1, keep_norm=True)(h)
    assert kept.square().sum().item() == pytest.approx(h.square().sum().item(), rel=1e-5)  # of this batch's norms
    few = torch.tensor([[1.0, 0, 0], [0, 1, 0]])  # two directions without variance
    assert Whitening(3, shrinkage=0, epsilon=0.1)(few).isfinite().all()


@pytest.mark.parametrize(
    "h",
    [
        torch.ones(4, 3),
        torch.zeros(4, 3),
        torch.tensor([[1.0, 2, 3]]),
        torch.eye(3)[:2] * 1e15,
        torch.eye(3)[:2] * 1e-15,
    ],
    ids=["constant", "zero", "one row", "huge", "tiny"],
)
@pytest.mark.parametrize(
    "method", [Whitening(3, shrinkage=0), Whitening(3, epsilon=0.1), Whitening(3, shrinkage=0, keep_norm=True)]
)
def test_degenerate_batches_stay_finite(h, method):
    """Other methods and settings: test_official_implementations.py."""
    leaf = h.clone().requires_grad_()
    out = method(leaf)
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("method", [BatchNorm(8), Whitening(8), FixedNorm(8)])
def test_statistics_are_float32_under_mixed_precision(method):
    (h,) = batches(1, 16, 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = method(h.bfloat16())
    assert out.dtype == torch.bfloat16
    assert all(not v.is_floating_point() or v.dtype == torch.float32 for v in method.state_dict().values())
    torch.testing.assert_close(out.float(), type(method)(8)(h), rtol=0.1, atol=0.1)
