"""Cross-entropy over a large vocabulary, computed for a chunk of tokens at a time: the logits [N, V] never exist.

torch's cross-entropy keeps [N, V] logits, log-probabilities and gradients. Here a chunk of tokens gets its logits,
losses and gradients before the next chunk starts. The gradients are computed in the forward pass, as in Liger Kernel
(Hsu et al. 2024), so no matrix product is computed twice.
"""

import math
from typing import Any

import torch
from torch import Tensor

CHUNK_LOGITS = 2**23  # logits that exist at a time, 32 MiB in float32, unless these are of fewer tokens than
LEAST_CHUNK_TOKENS = 256  # with far fewer the matrix products become slower


def fused_cross_entropy(
    states: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Sum the cross-entropy of softmax(states W^T + bias), in nats, over all tokens.

    Value and gradients are those of ``torch.nn.functional.cross_entropy`` with ``reduction="sum"``, up to rounding.
    Under autocast the matrix products have autocast's precision. The softmax is at least float32. The gradients of W
    and the bias are added up over chunks in the precision of W and the bias.

    Args:
        states: the decoder's states, [N, d].
        weight: the output embedding W, [V, d].
        labels: the words to predict, [N], each from 0 to V - 1.
        bias: added to the logits, [V].
        smoothing: share of the target probability that is spread over the whole vocabulary (Szegedy et al. 2016).

    Returns:
        A scalar; float64 for states of float64 without autocast, otherwise float32.

    Raises:
        RuntimeError: in the backward pass, if it is the second one, or has ``create_graph=True``.
    """
    if not torch.is_grad_enabled():
        return _compute_loss_and_gradients(states, weight, bias, labels, smoothing, (False, False, False))[0]
    total: Tensor = _FusedCrossEntropy.apply(states, weight, bias, labels, smoothing)
    return total


class _FusedCrossEntropy(torch.autograd.Function):
    """The summed cross-entropy, with gradients for the states [N, d], the output embedding [V, d] and a bias [V]."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
    ) -> Tensor:
        total, ctx.gradients = _compute_loss_and_gradients(
            states, weight, bias, labels, smoothing, ctx.needs_input_grad[:3]
        )
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused cross-entropy has no second derivative: "
                "call backward without create_graph=True, or use torch.nn.functional.cross_entropy"
            )
        if ctx.gradients is None:
            raise RuntimeError("the fused cross-entropy gives its gradients only once: compute the loss again")
        gradients, ctx.gradients = ctx.gradients, None
        return (*(None if kept is None else kept.mul_(gradient) for kept in gradients), None, None)


@torch.no_grad()
def _compute_loss_and_gradients(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    needed: tuple[bool, bool, bool],
) -> tuple[Tensor, list[Tensor | None]]:
    """Compute the summed cross-entropy and its gradients, a chunk of tokens at a time; see ``fused_cross_entropy``.

    ``needed``: whether the gradient of the states, of the weight, of the bias is needed; the others are None.
    """
    grad_states = torch.empty_like(states) if needed[0] else None
    grad_weight = torch.zeros_like(weight) if needed[1] else None
    grad_bias = torch.zeros_like(bias) if bias is not None and needed[2] else None
    device = states.device.type
    chunk_tokens = _choose_chunk_tokens(len(states), len(weight))
    is_autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if is_autocast else states.dtype
    with torch.autocast(device, enabled=False):
        w, b = weight.to(dtype), None if bias is None else bias.to(dtype)
        buffer = states.new_empty(chunk_tokens, len(weight), dtype=torch.promote_types(dtype, torch.float32))
        total = buffer.new_zeros(())
        for start in range(0, len(states), chunk_tokens):
            chunk = slice(start, start + chunk_tokens)
            h = states[chunk].to(dtype)
            logits = buffer[: len(h)]  # [n, V]
            _write_logits(logits, h, w, b)
            total += _replace_by_gradients(logits, labels[chunk, None], smoothing).sum()
            if grad_bias is not None:
                grad_bias += logits.T @ logits.new_ones(len(h))
            gradients = logits.to(dtype)
            if grad_states is not None:
                grad_states[chunk] = gradients @ w
            if grad_weight is not None and grad_weight.dtype == dtype:
                grad_weight.addmm_(gradients.T, h)
            elif grad_weight is not None:
                grad_weight += gradients.T @ h
    return total, [grad_states, grad_weight, grad_bias]


def _choose_chunk_tokens(tokens: int, words: int) -> int:
    chunks = math.ceil(tokens / max(LEAST_CHUNK_TOKENS, CHUNK_LOGITS // words))
    return math.ceil(tokens / max(chunks, 1)) or 1


def _write_logits(logits: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Write h W^T + bias into ``logits`` [n, V], also where h [n, d], W [V, d] and bias [V] have less precision."""
    if logits.dtype != h.dtype:
        logits.copy_(torch.nn.functional.linear(h, weight, bias))
    elif bias is None:
        torch.mm(h, weight.T, out=logits)
    else:
        torch.addmm(bias, h, weight.T, out=logits)


def _replace_by_gradients(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Return each token's cross-entropy, [n, 1], and overwrite its logits [n, V] with the loss's gradient for them.

    With p the softmax of the logits and q = (1 - smoothing) onehot(target) + smoothing / V, the loss is
    log sum exp(logits) - q . logits, and its gradient is p - q. Both stay the same if all of a token's logits are
    shifted, so its largest is subtracted first: no exponential overflows. ``targets`` are [n, 1].
    """
    logits -= logits.amax(1, keepdim=True)
    expected = (1 - smoothing) * logits.gather(1, targets)  # q . logits
    if smoothing:
        expected += smoothing * logits.mean(1, keepdim=True)
    sums = logits.exp_().sum(1, keepdim=True)
    logits /= sums  # p
    if smoothing:
        logits -= smoothing / logits.shape[1]
    logits[torch.arange(len(targets), device=targets.device), targets[:, 0]] -= 1 - smoothing
    return sums.log() - expected
