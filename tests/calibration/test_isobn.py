"""Properties of IsoBN, batch norm and whitening; test_official_implementations.py has their equations."""

import numpy as np
import pytest
import torch

from isobench.calibration import BatchNorm, FixedNorm, IsoBN, Whitening
from isobench.calibration.batch_statistics import count_effective_rows


@pytest.mark.parametrize("rescale", ["variance", "printed", "none", "released"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_batch_that_is_not_finite_shows_in_all_that_follows(rescale, value):
    isobn, generator = IsoBN(4, rescale=rescale), torch.Generator().manual_seed(1)
    h = torch.randn(8, 4, generator=generator)
    assert isobn(h).isfinite().all()
    h[2, 1] = value
    isobn(h)
    assert isobn(torch.randn(8, 4, generator=generator)).isnan().any()
    assert isobn.eval()(torch.randn(8, 4, generator=generator)).isnan().any()


@pytest.mark.parametrize(("batches", "start"), [(9, 0), (200, 0), (200, 1)])
@pytest.mark.parametrize(("momentum", "last"), [(0.95, 7), (0.05, 7), (0.95, 32), (0.5, 1)])
def test_moving_averages_vary_like_a_plain_mean_of_their_effective_rows(momentum, last, start, batches):
    """The variance of the average of i.i.d. rows of variance 1, from the weight of every row."""
    sizes = [last, *[32] * batches]
    weights = np.zeros(len(sizes))
    weights[-1] = start or momentum  # the first batch is the start, or zero is
    for batch in range(len(sizes) - 2, -1, -1):
        weights *= 1 - momentum
        weights[batch] += momentum
    rows = np.repeat(weights / sizes, sizes)
    expected = rows.sum() ** 2 / np.square(rows).sum()
    assert count_effective_rows(momentum, sizes, start == 0) == pytest.approx(expected)


def vectors(rows, dim):
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(dim, dim, generator=generator)
    return torch.randn(rows, dim, generator=generator) @ mix + 2


@pytest.mark.parametrize("method", [BatchNorm(8), Whitening(8), FixedNorm(8), IsoBN(8)])
def test_statistics_are_float32_under_mixed_precision(method):
    h = vectors(16, 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = method(h.bfloat16())
    assert out.dtype == torch.bfloat16
    assert all(not v.is_floating_point() or v.dtype == torch.float32 for v in method.state_dict().values())
    torch.testing.assert_close(out.float(), type(method)(8)(h), rtol=0.1, atol=0.1)


def test_batches_of_one_are_plain_training():
    """A batch of one row has no variance: theta stays 1, and the output is the input to the bit."""
    layer = IsoBN(4).train()
    for h in torch.randn(5, 1, 4):
        assert torch.equal(layer(h), h)


def test_before_training_it_is_the_identity():
    h = torch.randn(3, 4)
    assert torch.equal(IsoBN(4).eval()(h), h)
    assert torch.equal(IsoBN(4, subtract_mean=True).eval()(h), h)
