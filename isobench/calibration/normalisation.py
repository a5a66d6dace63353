"""Normalise each dimension: by statistics of the batch or of the pretrained embeddings, or only in the gradient."""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32, require_choice, require_number
from isobench.calibration.batch_statistics import (
    batch_mean,
    count_batch_rows,
    is_distributed,
    max_over_processes,
    sum_over_processes,
    sum_over_processes_with_grad,
)


class BatchNorm(Calibration):
    """Standardise every dimension: h -> (h - mu) / sqrt(sigma^2 + eps).

    Source: Ioffe & Szegedy 2015; the baseline of Zhou, Lin & Ren 2021, Fig. 7. In training mu and sigma^2 are those
    of the batch (over all processes), and the gradient flows through them. In evaluation, and for a batch of one
    row, they are moving averages. All of it is computed in float32 or better.

    Args:
        momentum: weight of the newest batch in the moving averages, in (0, 1].
        eps: added to the variance, above 0.
    """

    least_batch = 3  # of two rows every dimension becomes 1 and -1
    starts_from_constants = True
    mean: Tensor  # [d]
    variance: Tensor  # [d], unbiased (divided by B - 1)

    def __init__(self, dim: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__(dim)
        self.momentum = require_number("momentum", momentum, above=0, at_most=1)
        self.eps = require_number("eps", eps, above=0)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("variance", torch.ones(dim))

    def has_statistics(self) -> bool:
        """Return False as long as the moving averages are those of no batch."""
        return bool(self.mean.any() or (self.variance != 1).any())

    def forward(self, h: Tensor) -> Tensor:
        """Normalise embeddings [B, d] -> [B, d]; in training also update the moving averages."""
        with torch.autocast(h.device.type, enabled=False):
            x = promote_to_float32(h)
            mean, variance = self.mean, self.variance
            if self.training and (count := count_batch_rows(h)) > 1:
                mean = sum_over_processes_with_grad(x.sum(0)) / count
                variance = sum_over_processes_with_grad((x - mean).square().sum(0)) / count
                self.mean.lerp_(mean.detach().to(self.mean.dtype), self.momentum)
                unbiased = variance.detach() * (count / (count - 1))
                self.variance.lerp_(unbiased.to(self.variance.dtype), self.momentum)
            return ((x - mean) / (variance + self.eps).sqrt()).to(h.dtype)


class FixedNorm(Calibration):
    """Normalise each dimension by its statistics over the training set, as the pretrained encoder embeds it.

    ``z``: (h - mu) / (sigma + eps). ``minmax``: (2 h - t1 - t2) / (t2 - t1 + eps), with t1 and t2 the minimum and
    the maximum. ``l2``: h / (sqrt(E[h^2]) + eps). Source: Efficient Task Adaptation with Normalization, Sec. 4, which
    does not state eps. sigma is biased (divided by N). Before ``prepare`` is called, the layer is the identity.

    Args:
        kind: which of the three normalisations.
        eps: added to each denominator, above 0.
    """

    shift: Tensor  # [d]: the layer computes (h - shift) * scale
    scale: Tensor  # [d]

    def __init__(self, dim: int, kind: Literal["z", "minmax", "l2"] = "z", eps: float = 1e-5) -> None:
        super().__init__(dim)
        self.kind = require_choice("kind", kind, ("z", "minmax", "l2"))
        self.eps = require_number("eps", eps, above=0)
        self.register_buffer("shift", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))

    def has_statistics(self) -> bool:
        """Return False before ``prepare``."""
        return bool((self.scale != 1).any())

    def prepare(self, embeddings: Iterable[Tensor]) -> None:
        """Take the statistics in float64 from one pass over the training set, batches [B, d]."""
        count = 0
        mean = scatter = torch.zeros(self.dim, dtype=torch.float64)  # scatter: sum of squared deviations from mean
        minimum = torch.full((self.dim,), float("inf"), dtype=torch.float64)
        maximum = -minimum
        for batch in self.read_batches(embeddings):
            h = batch.detach().double().cpu()
            # Chan et al. 1983: stays exact for a mean far from 0, where plain sums of squares cancel.
            mean_of_rows, total = h.mean(0), count + len(h)
            step = mean_of_rows - mean
            scatter = scatter + (h - mean_of_rows).square().sum(0) + step.square() * (count * len(h) / total)
            mean = mean + step * (len(h) / total)
            minimum, maximum = torch.minimum(minimum, h.amin(0)), torch.maximum(maximum, h.amax(0))
            count = total
        count, mean, scatter, minimum, maximum = _merge_over_processes(count, mean, scatter, minimum, maximum)
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


def _merge_over_processes(
    count: int, mean: Tensor, scatter: Tensor, minimum: Tensor, maximum: Tensor
) -> tuple[int, Tensor, Tensor, Tensor, Tensor]:
    """Merge each process's count, mean, scatter (sum of squared deviations), minimum and maximum, [d] each."""
    if not is_distributed():
        return count, mean, scatter, minimum, maximum
    total = sum_over_processes(torch.tensor(float(count), dtype=torch.float64))
    overall_mean = sum_over_processes(count * mean) / total
    scatter = sum_over_processes(scatter + count * (mean - overall_mean).square())
    return int(total), overall_mean, scatter, -max_over_processes(-minimum), max_over_processes(maximum)


class GradientNorm(Calibration):
    """Rescale the gradient of each dimension j: g_j -> g_j (mean(mu) / (mu_j + eps))^alpha.

    mu_j is the mean of |g_j| over the batch, and mean(mu) the mean over dimensions (Efficient Task Adaptation with
    Normalization, Sec. 4). The forward pass is exactly the identity, and a gradient that is zero everywhere stays so.
    The paper does not state eps; here it is in units of mean(mu), since gradients have no fixed scale.

    Args:
        alpha: strength; the paper uses 0.5 and 1.
        eps: added to mu_j, in units of mean(mu), above 0.
    """

    def __init__(self, dim: int, alpha: float = 1.0, eps: float = 1e-6) -> None:
        super().__init__(dim)
        self.alpha = require_number("alpha", alpha)
        self.eps = require_number("eps", eps, above=0)

    def forward(self, h: Tensor) -> Tensor:
        """Return the embeddings [B, d] unchanged; their gradient will be rescaled."""
        same: Tensor = _GradientEqualization.apply(h, self.alpha, self.eps)  # type: ignore[no-untyped-call]
        return same


class _GradientEqualization(torch.autograd.Function):
    """The identity, with a backward pass that rescales each dimension of the gradient, in float32 or better."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, alpha: float, eps: float) -> Tensor:
        ctx.alpha, ctx.eps = alpha, eps
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        g = promote_to_float32(gradient)
        mu = batch_mean(g.abs())  # [d], over the batch of all processes
        mean = mu.mean()
        scale = torch.where(mean > 0, (mean / (mu + ctx.eps * mean)) ** ctx.alpha, 1.0)
        return (g * scale).to(gradient.dtype), None, None
