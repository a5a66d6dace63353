"""The one abstraction: a method overrides only the hooks it needs; everything else is the identity."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Calibration(nn.Module):
    """A calibration between encoder and head; by itself, plain fine-tuning.

    Args:
        dim: width d of the sentence embedding. ``out_dim``, the width that ``forward`` returns, is the same
            unless a method sets it.
    """

    dim: int
    out_dim: int

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = self.out_dim = dim

    def prepare(self, embeddings: Iterable[Tensor]) -> None:
        """Look once at the training set's pretrained embeddings, batches [B, d], before training starts."""

    def forward(self, h: Tensor) -> Tensor:
        """Embeddings [B, d] -> calibrated embeddings [B, d], before the head."""
        return h

    def penalty(self, weight: Tensor) -> Tensor:
        """A scalar added to the task loss, from the target matrix [V, d]."""
        return torch.zeros((), device=weight.device)

    def objective(self, h: Tensor) -> Tensor:
        """The method's own loss on embeddings [B, d] that carry no gradient to the encoder."""
        return torch.zeros((), device=h.device)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Optimiser groups with learning rates of their own; by default none, and the run's settings apply."""
        return []


def promote_to_float32(h: Tensor) -> Tensor:
    """The same numbers in float32, or in float64 where they are: statistics are never taken in half precision."""
    return h.to(torch.promote_types(h.dtype, torch.float32))


def overrides_hook(calibration: Calibration, hook: str) -> bool:
    """True if a method defines ``hook`` itself, so that unused hooks cost nothing."""
    return getattr(type(calibration), hook) is not getattr(Calibration, hook)
