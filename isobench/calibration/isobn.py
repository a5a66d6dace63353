"""Isotropic batch normalisation (Zhou, Lin & Ren 2021)."""

import math
from typing import Literal

import torch
from torch import Tensor

from isobench.calibration.base import Calibration
from isobench.calibration.batch_statistics import batch_covariance, batch_mean, center_batch

# Below this deviation a float32 variance is no longer a normal number, and a correlation means nothing.
SMALLEST_DEVIATION = torch.finfo(torch.float32).tiny ** 0.5


class IsoBN(Calibration):
    """Scale every dimension down by its deviation and by how many others it correlates with.

    theta_i = (sigma_i gamma_i + eps)^-beta (Eq. 6), rescaled to keep the sum of variances (Eq. 7),
    h^ = theta o h (Eq. 8). No mean is subtracted and nothing is learned; the statistics are moving averages
    of detached, biased statistics of the whole batch (of all processes), so the gradient is exactly
    ``grad * theta``. Training and evaluation use the same moving statistics. Statistics are float32 whatever the
    precision of ``h``.

    Where a statistic says nothing (before training; no variance at all), the layer is the identity;
    a feature that is constant correlates with nothing.

    Args:
        dim: width d of the embedding.
        momentum: weight alpha of the newest batch (Algorithm 1).
        eps: added to sigma * gamma.
        beta: strength of the normalisation, 0 for none.
        gamma: Eq. 4's ``sum`` over j of rho_ij^2, or the released code's ``mean``.
        rescale: ``variance`` multiplies theta by sqrt(sum sigma^2 / sum sigma^2 theta^2), which keeps the
            sum of variances as the text demands; ``printed`` is Eq. 7 literally, without the root;
            ``released`` is the authors' code in full: variances from the moving covariance's diagonal, eps
            in the denominator, correlations clamped to [-1, 1], statistics that start from zero. The other
            two start from the first batch (the paper does not say).

    Raises:
        ValueError: an unknown ``gamma`` or ``rescale``, a momentum outside (0, 1], or an eps not above 0.
    """

    covariance: Tensor  # [d, d]
    deviation: Tensor  # [d]
    batches: Tensor  # []

    def __init__(
        self,
        dim: int,
        momentum: float = 0.95,
        eps: float = 0.1,
        beta: float = 0.5,
        gamma: Literal["sum", "mean"] = "sum",
        rescale: Literal["variance", "printed", "released"] = "variance",
    ) -> None:
        super().__init__(dim)
        if gamma not in ("sum", "mean"):
            raise ValueError(f"gamma must be sum or mean, not {gamma!r}")
        if rescale not in ("variance", "printed", "released"):
            raise ValueError(f"rescale must be variance, printed or released, not {rescale!r}")
        self.momentum, self.eps, self.beta = float(momentum), float(eps), float(beta)
        if not 0 < self.momentum <= 1:
            raise ValueError(f"momentum must be in (0, 1], not {momentum}")
        if not (0 < self.eps < math.inf and math.isfinite(self.beta)):
            raise ValueError(f"eps must be above 0 and beta a number, not eps={eps}, beta={beta}")
        self.gamma, self.rescale = gamma, rescale
        self.register_buffer("covariance", torch.zeros(dim, dim, dtype=torch.float32))
        self.register_buffer("deviation", torch.zeros(dim, dtype=torch.float32))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> [B, d]; updates the moving statistics in training."""
        with torch.no_grad(), torch.autocast(h.device.type, enabled=False):
            if self.training:
                self._update(h.detach().to(self.covariance.dtype))
            scale = self._compute_scale()  # (d,)
        return (h * scale).to(h.dtype)

    def _update(self, h: Tensor) -> None:
        _, centred = center_batch(h)
        deviation = batch_mean(centred.square()).sqrt()
        covariance = batch_covariance(centred)
        weight: float | Tensor = self.momentum
        if self.rescale != "released":
            weight = torch.where(self.batches == 0, 1.0, self.momentum)
        self.deviation.lerp_(deviation, weight)
        self.covariance.lerp_(covariance, weight)
        self.batches += 1

    def _compute_scale(self) -> Tensor:
        released = self.rescale == "released"
        inverse = torch.where(self.deviation > SMALLEST_DEVIATION, 1 / self.deviation, 0.0)
        rho = self.covariance * inverse[:, None] * inverse  # (d, d)
        if released:
            rho = rho.clamp(-1, 1)
        squares = rho.square()
        gamma = squares.sum(1) if self.gamma == "sum" else squares.mean(1)
        theta = (self.deviation * gamma + self.eps) ** -self.beta
        variance = self.covariance.diagonal() if released else self.deviation.square()
        before, after = variance.sum(), (variance * theta.square()).sum()
        ratio = before / (after + self.eps if released else after)
        theta = theta * (ratio if self.rescale == "printed" else ratio.sqrt())
        return torch.where(before > 0, theta, torch.ones_like(theta))
