"""Dropout on a CPU whose random numbers are 16 bits wide, instead of torch's.

torch draws one random number after the other, one for every element. Here one draw of 64 bits gives four elements
their numbers, and numpy and torch compare and multiply whole vectors. The masks have
the same distribution as torch's, up to the rounding of the rate, but they are other masks.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

NUMBERS = 1 << 16  # of different values that 16 bits can hold


class DropoutNumbers:
    """The random numbers of all dropout layers of a run, by numpy's generator SFC64."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.SFC64(np.random.SeedSequence([seed, 0]))

    def draw(self, count: int) -> np.ndarray:
        """Draw independent numbers, uniform over 0 to 65,535; returns uint16, [count]."""
        raw: np.ndarray = self.generator.random_raw(-(-count // 4))
        return raw.view(np.uint16)[:count]

    def get_state(self) -> list[int]:
        """Return the generator's state, four whole numbers, for a checkpoint."""
        return [int(word) for word in self.generator.state["state"]["state"]]

    def set_state(self, state: list[int]) -> None:
        """Continue from a state that ``get_state`` returned."""
        words = np.array(state, dtype=np.uint64)
        self.generator.state = {**self.generator.state, "state": {"state": words}}


class CpuDropout(nn.Module):
    """Dropout with the numbers of a ``DropoutNumbers``; stands in for ``torch.nn.Dropout``.

    The rate is rounded to a multiple of 1/65,536, so it is off by at most 7.7e-6. What is kept is divided by 1 minus
    the rounded rate, so that the mean stays the same. A tensor on another device than the CPU gets torch's dropout.
    """

    def __init__(self, p: float, source: DropoutNumbers) -> None:
        super().__init__()
        self.p, self.source = p, source
        self.threshold = round(p * NUMBERS)  # a number below it drops its element

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of x's shape and type: in training with dropout, else x itself."""
        if not self.training or self.threshold == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p)
        if self.threshold == NUMBERS:
            return x * 0.0
        kept = self.source.draw(x.numel()) >= self.threshold
        mask = torch.from_numpy(kept.view(np.uint8)).view(x.shape)
        dropped: Tensor = MaskedScale.apply(x, mask, NUMBERS / (NUMBERS - self.threshold))
        return dropped


class MaskedScale(torch.autograd.Function):
    """Multiply a tensor by a mask and a scale; keep one byte an element for the backward pass.

    The mask is converted to the tensor's type first: torch multiplies tensors of two types five times as slowly. The
    scale is a separate factor, because bfloat16 would round it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        """Multiply x, of any shape, by the mask, uint8 of 0 and 1 in the same shape, and by the scale."""
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return (x * mask.to(x.dtype)).mul_(scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Multiply the gradient by the same mask and scale."""
        (mask,) = ctx.saved_tensors
        return (gradient * mask.to(gradient.dtype)).mul_(ctx.scale), None, None


def replace_dropout(model: nn.Module, source: DropoutNumbers) -> None:
    """Replace every ``torch.nn.Dropout`` in a model by a ``CpuDropout`` of the same rate, in place.

    Dropout that a model computes without such a module stays torch's, such as all of BART's. The attention weights of
    packed sentences get it from these modules too (isobench/models/attention.py).
    """
    replaced: dict[nn.Module, CpuDropout] = {}  # a module may stand in several places
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if type(child) is nn.Dropout:
                if child not in replaced:
                    replaced[child] = CpuDropout(child.p, source).train(child.training)
                parent._modules[name] = replaced[child]


def attend_with_dropout(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, dropout: nn.Module
) -> Tensor:
    """Compute scaled dot-product attention whose weights pass through a dropout module: [b, heads, Q, dh].

    Args:
        q: queries, [b, heads, Q, dh]; keys and values are [b, heads, T, dh].
        mask: broadcasts to [b, heads, Q, T]: boolean, True where a token is read; or of q's type, added to the
            scores; or None if every token is read. A query that may read nothing gets the mean of all values.
        scaling: factor of the scores.
    """
    exact = torch.promote_types(q.dtype, torch.float32)  # scores in half precision would be less exact than torch's
    with torch.autocast(q.device.type, enabled=False):
        scores = q.to(exact) @ k.to(exact).transpose(-1, -2)  # (b, heads, Q, T)
        if mask is None:
            scores = scores * scaling
        else:
            if mask.dtype == torch.bool:
                lowest = torch.finfo(exact).min
                mask = torch.zeros(mask.shape, dtype=exact, device=mask.device).masked_fill_(~mask, lowest)
            scores = torch.add(mask, scores, alpha=scaling)
        return (dropout(scores.softmax(-1)) @ v.to(exact)).to(v.dtype)
