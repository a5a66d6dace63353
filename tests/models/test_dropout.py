"""Dropout by 16-bit lanes: its masks' statistics, its gradient, its generator's state, and attention with it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from isobench.models.dropout import CpuDropout, DropoutNumbers, MaskedScale, attend_with_dropout

RATES = [0.1, 0.02, 0.5, 1 / 3, 0.999, 1e-5, 0.2, 0.123456]


class EveryNumber(DropoutNumbers):
    """A source whose lanes hold every number once."""

    def draw(self, count):
        return np.arange(count, dtype=np.uint16)


def drop(x, p=0.3, seed=1):
    return CpuDropout(p, DropoutNumbers(seed))(x)


def test_the_generator_is_numpy_s():
    words = np.random.SFC64(np.random.SeedSequence([5, 0])).random_raw(3)
    lanes = [int(word) >> shift & 0xFFFF for word in words for shift in (0, 16, 32, 48)]
    assert DropoutNumbers(5).draw(10).tolist() == lanes[:10]


@pytest.mark.parametrize("p", RATES)
def test_the_rate_is_exact_over_all_lanes_and_the_mean_is_kept(p):
    x = torch.ones(1 << 16, dtype=torch.float64)
    y = CpuDropout(p, EveryNumber(0))(x)
    rate = (y == 0).double().mean().item()
    assert abs(rate - p) <= 1e-5
    assert rate * 65536 == round(p * 65536)
    assert y.max().item() == pytest.approx(1 / (1 - rate), rel=1e-15)
    assert y.mean().item() == pytest.approx(1, rel=1e-12)


def test_the_gradient_is_mask_times_scale():
    x = torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
    mask = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (4, 7), dtype=np.uint8))
    assert torch.autograd.gradcheck(lambda x: MaskedScale.apply(x, mask, 1.25), x)
    assert torch.autograd.gradgradcheck(lambda x: MaskedScale.apply(x, mask, 1.25), x)
    (gradient,) = torch.autograd.grad(MaskedScale.apply(x, mask, 1.25).sum(), x)
    assert torch.equal(gradient, mask * 1.25)
    y = drop(x)
    (gradient,) = torch.autograd.grad((y**2).sum() / 2, x)
    scale = 65536 / (65536 - round(0.3 * 65536))
    assert torch.equal(gradient, torch.where(y != 0, y * scale, 0.0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_does_not_round_the_scale(dtype):
    x = torch.randn(999).to(dtype).requires_grad_()
    y = drop(x, 0.1)
    scale = 65536 / (65536 - 6554)
    assert y.dtype == dtype
    assert torch.equal(y, torch.where(y != 0, (x.float() * scale).to(dtype), 0.0))
    y.sum().backward()
    assert x.grad.dtype == dtype


def test_no_dropout_in_evaluation_and_at_rate_0():
    x = torch.randn(9)
    source = DropoutNumbers(1)
    assert CpuDropout(0.5, source).eval()(x) is x
    assert CpuDropout(0.0, source)(x) is x
    assert source.get_state() == DropoutNumbers(1).get_state()  # nothing was drawn


def make_attention_inputs():
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(3, 2, 5, 4, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(3))
    read = (torch.arange(5) < torch.tensor([5, 3, 1])[:, None])[:, None, None]
    added = torch.zeros(read.shape, dtype=torch.float64).masked_fill(~read, -math.inf)
    return (q, k, v), {"none": None, "boolean": read, "added": added}


@pytest.mark.parametrize("name", ["none", "boolean", "added"])
def test_attention_without_dropout_is_torch_s(name):
    inputs, masks = make_attention_inputs()
    ours = attend_with_dropout(*inputs, masks[name], 0.4, nn.Identity())
    theirs = nn.functional.scaled_dot_product_attention(*inputs, attn_mask=masks[name], scale=0.4)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weight = torch.randn(ours.shape, dtype=torch.float64)
    for mine, other in zip(
        torch.autograd.grad((ours * weight).sum(), inputs), torch.autograd.grad((theirs * weight).sum(), inputs),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


def test_attention_drops_weights_after_the_softmax():
    (q, k, v), masks = make_attention_inputs()
    ours = attend_with_dropout(q, k, v, masks["boolean"], 0.4, CpuDropout(0.3, DropoutNumbers(1)))
    weights = (0.4 * torch.einsum("bhqd,bhkd->bhqk", q, k) + masks["added"]).softmax(-1)
    torch.testing.assert_close(ours, torch.einsum("bhqk,bhkd->bhqd", drop(weights), v), rtol=1e-12, atol=1e-12)


def test_a_query_that_may_read_nothing_gets_the_mean():
    (q, k, v), _ = make_attention_inputs()
    nothing = torch.zeros(3, 1, 5, 5, dtype=torch.bool)
    found = attend_with_dropout(q, k, v, nothing, 0.4, nn.Identity())
    torch.testing.assert_close(found, v.mean(2, keepdim=True).expand_as(found))
