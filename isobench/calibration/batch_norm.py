"""Batch normalisation without learned parameters: IsoBN's baseline."""

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32
from isobench.calibration.batch_statistics import count_batch_rows, sum_over_processes_with_grad


class BatchNorm(Calibration):
    """h -> (h - mu) / sigma in every dimension (Ioffe & Szegedy 2015; the baseline of Zhou et al. 2021, Fig. 7).

    The whole batch's statistics in training, through which the gradient flows, the moving ones in evaluation and
    for a batch of one, which has none of its own. Float32 or better whatever the precision of ``h``.

    Args:
        dim: width d of the embedding.
        momentum: weight of the newest batch in the moving statistics.
        eps: added to the variance.

    Raises:
        ValueError: a momentum outside (0, 1], or an eps not above 0.
    """

    mean: Tensor  # [d]
    variance: Tensor  # [d], divided by N - 1

    def __init__(self, dim: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__(dim)
        if not (0 < momentum <= 1 and 0 < eps < float("inf")):
            raise ValueError(f"momentum must be in (0, 1] and eps above 0, not momentum={momentum}, eps={eps}")
        self.momentum, self.eps = float(momentum), float(eps)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("variance", torch.ones(dim))

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> [B, d]; updates the moving statistics in training."""
        with torch.autocast(h.device.type, enabled=False):
            given = promote_to_float32(h)
            mean, variance = self.mean, self.variance
            if self.training and (count := count_batch_rows(h)) > 1:
                mean = sum_over_processes_with_grad(given.sum(0)) / count
                variance = sum_over_processes_with_grad((given - mean).square().sum(0)) / count
                self.mean.lerp_(mean.detach().to(self.mean.dtype), self.momentum)
                unbiased = variance.detach() * (count / (count - 1))
                self.variance.lerp_(unbiased.to(self.variance.dtype), self.momentum)
            return ((given - mean) / (variance + self.eps).sqrt()).to(h.dtype)
