"""The fused cross-entropy: its value and gradients, of torch in float64, its edges, precision and memory."""

import pytest
import torch
from torch import nn

from isobench.kinds.words import fused_loss
from isobench.kinds.words.fused_loss import fused_cross_entropy


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(fused_loss, "LEAST_CHUNK_TOKENS", 4)
    monkeypatch.setattr(fused_loss, "CHUNK_LOGITS", 1)


def make_inputs(tokens: int, dtype=torch.float64, words: int = 37, width: int = 5):
    generator = torch.Generator().manual_seed(tokens)
    states, weight, bias = (
        (2 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
        for shape in ((tokens, width), (words, width), (words,))
    )
    labels = torch.randint(words, (tokens,), generator=generator)
    return states, weight, bias, labels


def differentiate(states, weight, bias, labels, smoothing):
    """The sum and its gradients in float64, by torch's own cross-entropy (test_seq2seq.py has the loss by hand)."""
    tensors = [tensor.detach().double().requires_grad_() for tensor in (states, weight, bias)]
    options = {"reduction": "sum", "label_smoothing": smoothing}
    total = nn.functional.cross_entropy(nn.functional.linear(*tensors), labels, **options)
    return total.item(), torch.autograd.grad(total, tensors)


def compute(states, weight, bias, labels, smoothing):
    total = fused_cross_entropy(states, weight, labels, bias, smoothing)
    tensors = [tensor for tensor in (states, weight, bias) if tensor is not None]
    return total, torch.autograd.grad(total, tensors)


@pytest.mark.parametrize("tokens", [1, 4, 11])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [True, False])
def test_value_and_gradients_are_torchs(tokens, smoothing, biased):
    states, weight, bias, labels = make_inputs(tokens)
    total, grads = compute(states, weight, bias if biased else None, labels, smoothing)
    expected, derived = differentiate(states, weight, bias if biased else 0 * bias, labels, smoothing)
    assert total.item() == pytest.approx(expected, rel=1e-12)
    for gradient, theirs in zip(grads, derived, strict=biased):
        assert (gradient - theirs).norm() <= 1e-12 * theirs.norm()


def test_logits_that_overflow_an_exponential_give_finite_losses_and_gradients():
    states = torch.tensor([[1e3, 0.0], [-2e3, 0.0]], requires_grad=True)
    weight = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.5, 2.0]], requires_grad=True)
    labels = torch.tensor([1, 1])  # the first is improbable: its probability is 0 in float32
    total, grads = compute(states, weight, None, labels, 0.0)
    assert total.item() == pytest.approx(2000.0)
    assert torch.equal(grads[0], torch.tensor([[2.0, -1.0], [0.0, 0.0]]))
    assert torch.equal(grads[1], torch.tensor([[1e3, 0.0], [-1e3, 0.0], [0.0, 0.0]]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_rounds_no_more_than_in_torchs_cross_entropy(dtype):
    """Both are compared with float64; the weights and their gradients stay float32."""
    states, weight, bias, labels = make_inputs(40, torch.float32, words=300)
    expected, derived = differentiate(states, weight, bias, labels, 0.1)
    with torch.autocast("cpu", dtype):
        total, grads = compute(states, weight, bias, labels, 0.1)
        logits = nn.functional.linear(states, weight, bias)
        plain = nn.functional.cross_entropy(logits.float(), labels, reduction="sum", label_smoothing=0.1)
    assert logits.dtype == dtype
    assert total.dtype == torch.float32
    assert abs(total.item() - expected) <= 2 * abs(plain.item() - expected) + 1e-6 * expected
    for own, rounded, exact in zip(grads, torch.autograd.grad(plain, (states, weight, bias)), derived, strict=True):
        assert own.dtype == torch.float32
        assert (own - exact).norm() <= 1.5 * (rounded - exact).norm()
