"""Normalisation by statistics of the pretrained embeddings, which training never updates."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from isobench.calibration.base import Calibration
from isobench.calibration.batch_statistics import is_distributed, max_over_processes, sum_over_processes


class FixedNorm(Calibration):
    """Normalise each dimension by its statistics over the training set, as the pretrained encoder embeds it.

    ``z``: (h - mu) / (sigma + eps). ``minmax``: (2 h - t1 - t2) / (t2 - t1 + eps), with t1 and t2 the minimum and
    the maximum. ``l2``: h / (sqrt(E[h^2]) + eps). Source: Efficient Task Adaptation with Normalization, Sec. 4, which
    does not state eps. sigma is biased (divided by N). Before ``prepare`` is called, the layer is the identity.

    Args:
        dim: width d of the embeddings.
        kind: which of the three normalisations.
        eps: added to each denominator.

    Raises:
        ValueError: if kind is unknown, or eps is not above 0.
    """

    shift: Tensor  # [d]: the layer computes (h - shift) * scale
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
        """Take the statistics in float64 from one pass over the training set, batches [B, d].

        Raises:
            ValueError: if there are no embeddings.
        """
        count = 0
        mean = scatter = torch.zeros(self.dim, dtype=torch.float64)  # scatter: sum of squared deviations from mean
        minimum = torch.full((self.dim,), float("inf"), dtype=torch.float64)
        maximum = -minimum
        for batch in embeddings:
            h = batch.detach().double().cpu()
            # Chan et al. 1983: stays exact for a mean far from 0, where plain sums of squares cancel.
            batch_mean, total = h.mean(0), count + len(h)
            step = batch_mean - mean
            scatter = scatter + (h - batch_mean).square().sum(0) + step.square() * (count * len(h) / total)
            mean = mean + step * (len(h) / total)
            minimum, maximum = torch.minimum(minimum, h.amin(0)), torch.maximum(maximum, h.amax(0))
            count = total
        count, mean, scatter, minimum, maximum = merge_over_processes(count, mean, scatter, minimum, maximum)
        if not count:
            raise ValueError("there are no embeddings to take statistics from: the training set is empty")
        variance = scatter / count
        if self.kind == "z":
            shift, width = mean, variance.sqrt() + self.eps
        elif self.kind == "minmax":
            shift, width = (minimum + maximum) / 2, (maximum - minimum + self.eps) / 2
        else:
            shift, width = torch.zeros_like(mean), (variance + mean.square()).sqrt() + self.eps
        self.shift.copy_(shift)
        self.scale.copy_(1 / width)

    def forward(self, h: Tensor) -> Tensor:
        """Normalise embeddings: [B, d] -> [B, d]."""
        return ((h - self.shift) * self.scale).to(h.dtype)


def merge_over_processes(
    count: int, mean: Tensor, scatter: Tensor, minimum: Tensor, maximum: Tensor
) -> tuple[int, Tensor, Tensor, Tensor, Tensor]:
    """Merge the statistics that each process took of its part of the training set; one process's stay as they are.

    Args:
        count: number of rows.
        mean: their mean, [d].
        scatter: sum of their squared deviations from the mean, [d].
        minimum, maximum: of each dimension, [d].

    Returns:
        The five statistics of all processes' rows, in the same order.
    """
    if not is_distributed():
        return count, mean, scatter, minimum, maximum
    total = sum_over_processes(torch.tensor(float(count), dtype=torch.float64))
    overall_mean = sum_over_processes(count * mean) / total
    scatter = sum_over_processes(scatter + count * (mean - overall_mean).square())
    return int(total), overall_mean, scatter, -max_over_processes(-minimum), max_over_processes(maximum)
