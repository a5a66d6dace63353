"""Forms of attention other than softmax attention, for language models that are trained from nothing.

Each is a function as transformers' attention interface wants it: query, key and value [b, heads, T, d / heads] and an
additive mask [b, 1, T, T] in; what the tokens read, [b, T, heads, d / heads], and the weights [b, heads, T, T] out.
"""

from typing import Any

import torch
from torch import Tensor, nn

Attended = tuple[Tensor, Tensor]


def attend_on_average(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> Attended:
    """Read all tokens that may be read with equal weights, whatever they are."""
    scores = _add_mask(torch.zeros_like(query @ key.mT), attention_mask)
    return _read(scores.softmax(-1), value, dropout, module.training)


def attend_off_by_one(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> Attended:
    """Read with exp(s_i) / (1 + sum_j exp(s_j)): a head that has nothing to read needs no token as a sink.

    The one stands for a further token with score 0 and value 0, as in "Attention Is Off By One" (Miller 2023).
    """
    scores = _add_mask(query @ key.mT * scaling, attention_mask)
    highest = scores.amax(-1, keepdim=True).clamp_min(0.0)
    exponentials = (scores - highest).exp()
    weights = exponentials / (exponentials.sum(-1, keepdim=True) + (-highest).exp())
    return _read(weights, value, dropout, module.training)


def _add_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores + mask


def _read(weights: Tensor, value: Tensor, dropout: float, training: bool) -> Attended:
    weights = nn.functional.dropout(weights, dropout, training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def register_form(name: str) -> str:
    """Register a value of ``encoder.attention`` with transformers; return the name that its models know it by."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    known = f"isobench_{name}"
    AttentionInterface.register(known, {"average": attend_on_average, "off_by_one": attend_off_by_one}[name])
    AttentionMaskInterface.register(known, eager_mask)
    return known
