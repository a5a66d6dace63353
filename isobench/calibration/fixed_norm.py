"""Normalisation by statistics of the pretrained embeddings, taken once and never updated."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from isobench.calibration.base import Calibration
from isobench.calibration.batch_statistics import is_distributed, max_over_processes, sum_over_processes


class FixedNorm(Calibration):
    """Each dimension by its statistics over the training set, from the frozen pretrained encoder.

    ``z``: (x - mu) / (sigma + eps). ``minmax``: (2x - t1 - t2) / (t2 - t1 + eps), t1 and t2 the least and the
    greatest. ``l2``: x / (sqrt(E[x^2]) + eps). Adaptation paper, Sec. 4; sigma is biased (divided by N). The
    paper does not state eps. Before it is prepared, the layer is the identity.

    Args:
        dim: width d of the embedding.
        kind: which of the three.
        eps: in every denominator.

    Raises:
        ValueError: an unknown kind, an eps not above 0, or no embeddings to prepare from.
    """

    shift: Tensor  # [d]
    scale: Tensor  # [d]

    def __init__(self, dim: int, kind: Literal["z", "minmax", "l2"] = "z", eps: float = 1e-5) -> None:
        super().__init__(dim)
        if kind not in ("z", "minmax", "l2"):
            raise ValueError(f"kind must be z, minmax or l2, not {kind!r}")
        if not 0 < eps < float("inf"):
            raise ValueError(f"eps must be above 0, not {eps}")
        self.kind, self.eps = kind, float(eps)
        self.register_buffer("shift", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))

    def prepare(self, embeddings: Iterable[Tensor]) -> None:
        """One pass over batches [B, d]; float64 sums."""
        count = 0
        mean = squares = torch.zeros(self.dim, dtype=torch.float64)  # mean, and sum of squared deviations from it
        least = torch.full((self.dim,), float("inf"), dtype=torch.float64)
        greatest = -least
        for batch in embeddings:
            h = batch.detach().double().cpu()
            # Chan et al. 1983: exact for far-off means, where a sum of plain squares cancels.
            own = h.mean(0)
            step, seen = own - mean, count + len(h)
            squares = squares + (h - own).square().sum(0) + step.square() * (count * len(h) / seen)
            mean = mean + step * (len(h) / seen)
            least, greatest = torch.minimum(least, h.amin(0)), torch.maximum(greatest, h.amax(0))
            count = seen
        count, mean, squares, least, greatest = merge_over_processes(count, mean, squares, least, greatest)
        if not count:
            raise ValueError("there are no embeddings to take statistics from")
        variance = squares / count
        if self.kind == "z":
            shift, width = mean, variance.sqrt() + self.eps
        elif self.kind == "minmax":
            shift, width = (least + greatest) / 2, (greatest - least + self.eps) / 2
        else:
            shift, width = torch.zeros_like(mean), (variance + mean.square()).sqrt() + self.eps
        self.shift.copy_(shift)
        self.scale.copy_(1 / width)

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> [B, d]."""
        return ((h - self.shift) * self.scale).to(h.dtype)


def merge_over_processes(count: int, mean: Tensor, squares: Tensor, least: Tensor, greatest: Tensor) -> tuple:
    """The statistics of what all processes saw, from what each saw; the same as given if there is one process."""
    if not is_distributed():
        return count, mean, squares, least, greatest
    seen = sum_over_processes(torch.tensor(float(count), dtype=torch.float64))
    overall = sum_over_processes(count * mean) / seen
    squares = sum_over_processes(squares + count * (mean - overall).square())
    greatest, least = max_over_processes(greatest), -max_over_processes(-least)
    return int(seen), overall, squares, least, greatest
