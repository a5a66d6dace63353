"""Batch normalisation without learned parameters: IsoBN's baseline."""

import torch
from torch import Tensor, nn

from isobench.calibration.base import Calibration, wide


class BatchNorm(Calibration):
    """h -> (h - mu) / sigma in every dimension (Ioffe & Szegedy 2015; the baseline of Zhou et al. 2021, Fig. 7).

    The batch's statistics in training, through which the gradient flows, the moving ones in evaluation and for
    a batch of one, which has none of its own. Float32 whatever the precision of ``h``.

    Args:
        dim: width d of the embedding.
        momentum: weight of the newest batch in the moving statistics.
        eps: added to the variance.

    Raises:
        ValueError: a momentum outside (0, 1], or an eps not above 0.
    """

    def __init__(self, dim: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__(dim)
        if not (0 < momentum <= 1 and 0 < eps < float("inf")):
            raise ValueError(f"momentum must be in (0, 1] and eps above 0, not momentum={momentum}, eps={eps}")
        self.norm = nn.BatchNorm1d(dim, eps=eps, momentum=momentum, affine=False)

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> [B, d]; updates the moving statistics in training."""
        with torch.autocast(h.device.type, enabled=False):
            given = wide(h)
            if len(h) > 1:
                return self.norm(given).to(h.dtype)
            mean, variance = self.norm.running_mean, self.norm.running_var
            return nn.functional.batch_norm(given, mean, variance, eps=self.norm.eps).to(h.dtype)
