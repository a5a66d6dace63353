"""Batch normalisation without learned parameters, the baseline of IsoBN."""

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32
from isobench.calibration.batch_statistics import count_batch_rows, sum_over_processes_with_grad


class BatchNorm(Calibration):
    """Standardise every dimension: h -> (h - mu) / sqrt(sigma^2 + eps).

    Source: Ioffe & Szegedy 2015; the baseline of Zhou, Lin & Ren 2021, Fig. 7. In training mu and sigma^2 are those
    of the batch (over all processes), and the gradient flows through them. In evaluation, and for a batch of one
    row, they are moving averages. All of it is computed in float32 or better.

    Args:
        dim: width d of the embeddings.
        momentum: weight of the newest batch in the moving averages.
        eps: added to the variance.

    Raises:
        ValueError: if momentum is outside (0, 1], or eps is not above 0.
    """

    mean: Tensor  # [d]
    variance: Tensor  # [d], unbiased (divided by B - 1)

    def __init__(self, dim: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__(dim)
        if not (0 < momentum <= 1 and 0 < eps < float("inf")):
            raise ValueError(f"momentum must be in (0, 1] and eps above 0, not momentum={momentum}, eps={eps}")
        self.momentum, self.eps = float(momentum), float(eps)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("variance", torch.ones(dim))

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
