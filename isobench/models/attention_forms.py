"""Forms of attention other than softmax attention, for language models that are trained from nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


def weigh_off_by_one(scores: Tensor) -> Tensor:
    """Compute exp(s_i) / (1 + sum_j exp(s_j)): a head that has nothing to read needs no token as a sink.

    The one stands for a further token with score 0 and value 0, as in "Attention Is Off By One" (Miller 2023).
    """
    highest = scores.amax(-1, keepdim=True).clamp_min(0.0)
    exponentials = (scores - highest).exp()
    return exponentials / (exponentials.sum(-1, keepdim=True) + (-highest).exp())


def attend(
    weigh: Callable[[Tensor], Tensor] | None,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Attend as transformers' attention interface wants it; without ``weigh`` all tokens are read alike.

    Query, key and value are [b, heads, T, d / heads], the mask is added, [b, 1, T, T]. Returns what the tokens read,
    [b, T, heads, d / heads], and the weights.
    """
    scores = query @ key.mT * scaling if weigh else torch.zeros_like(query @ key.mT)
    scores = scores if attention_mask is None else scores + attention_mask
    weights = nn.functional.dropout(weigh(scores) if weigh else scores.softmax(-1), dropout, module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


attend_on_average, attend_off_by_one = partial(attend, None), partial(attend, weigh_off_by_one)


def register_form(name: str) -> str:
    """Register a value of ``encoder.attention`` with transformers; return the name that its models know it by."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    known = f"isobench_{name}"
    AttentionInterface.register(known, {"average": attend_on_average, "off_by_one": attend_off_by_one}[name])
    AttentionMaskInterface.register(known, eager_mask)
    return known
