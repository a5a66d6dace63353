"""Forms of attention and of norms that transformers lacks, for language models that are trained from nothing."""

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
    scores = query @ key.mT * scaling if weigh else torch.zeros_like(query @ key.mT)  # which has no gradient
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


class HeadScale(nn.Module):
    """Multiply what each head read by a learned number; tokens are [..., heads x width of a head]."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(heads))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return (x.unflatten(-1, (len(self.scale), -1)) * self.scale[:, None]).flatten(-2)


def add_normformer(model: nn.Module) -> None:
    """Add NormFormer's scales and norms to every layer of an OPT model (Shleifer et al. 2021, section 2).

    Each head's output is scaled, the attention's output gets a norm of its own, and so does the feed-forward part
    behind its activation.
    """
    from transformers.models.opt.modeling_opt import OPTDecoderLayer

    for layer in (module for module in model.modules() if isinstance(module, OPTDecoderLayer)):
        attention, width = layer.self_attn, layer.embed_dim
        attention.out_proj = nn.Sequential(HeadScale(attention.num_heads), attention.out_proj, nn.LayerNorm(width))
        layer.fc2 = nn.Sequential(nn.LayerNorm(layer.fc2.in_features), layer.fc2)
