"""Isotropic batch normalisation: IsoBN (Zhou, Lin & Ren 2021)."""

from typing import Literal

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, require_bool, require_choice, require_number
from isobench.calibration.batch_statistics import batch_covariance, batch_mean, center_batch

# Below this deviation a float32 variance underflows, and a correlation computed from it is meaningless.
SMALLEST_DEVIATION = torch.finfo(torch.float32).tiny ** 0.5


class IsoBN(Calibration):
    """Scale each dimension down by its standard deviation and by its correlation with all dimensions.

    theta_i = (sigma_i gamma_i + eps)^-beta, with gamma_i = sum over j of rho_ij^2 (Eqs. 4, 6); theta is rescaled to
    keep the sum of variances (Eq. 7); the output is theta o h (Eq. 8). Nothing is learned.

    The paper derives this from theta o (h - mu) with theta_i = 1 / (sigma_i gamma_i) (Eqs. 3, 5), which is
    ``IsoBN(dim, eps=0, beta=1, rescale="none", subtract_mean=True)``.

    mu, sigma and rho come from moving averages of the batch's biased statistics (over all processes), in float32.
    They are detached, so the gradient is multiplied by theta, and are used in training and evaluation alike. Before
    training, and as long as there is no variance at all, theta is 1. A constant dimension has correlation 0 with
    every dimension; with eps = 0, where Eq. 5 would divide by zero, its theta_i is 1.

    Args:
        momentum: weight alpha of the newest batch in the moving averages (Algorithm 1), in (0, 1].
        eps: added to sigma * gamma; above 0, or 0 without rescaling. It has the unit of the embeddings, in the paper
            too, so theta depends on their scale: far below eps it is nearly 1, far above it eps has no effect.
        beta: strength of the normalisation, 0 for none.
        gamma: ``sum`` over j of rho_ij^2, as in Eq. 4, or their ``mean``, as in the released code.
        rescale: how theta is rescaled. ``variance`` multiplies it by sqrt(sum sigma^2 / sum sigma^2 theta^2), which
            keeps the sum of variances, as the text demands. ``printed`` is Eq. 7 as printed, without the root.
            ``released`` does all that the authors' code does: it takes the variances from the covariance's moving
            average, adds eps to the denominator, clamps correlations to [-1, 1], and starts the averages from zero.
            The others start them from the first batch; the paper does not say. ``none`` leaves theta as it is.
        subtract_mean: subtract the moving average of the batch's mean before scaling.
    """

    least_batch = 2  # one row has no variance
    covariance: Tensor  # [d, d], moving average
    deviation: Tensor  # [d], moving average of the standard deviations
    mean: Tensor  # [d], moving average of the mean; only there with subtract_mean
    batches: Tensor  # [], how many batches the averages hold

    def __init__(
        self,
        dim: int,
        momentum: float = 0.95,
        eps: float = 0.1,
        beta: float = 0.5,
        gamma: Literal["sum", "mean"] = "sum",
        rescale: Literal["variance", "printed", "released", "none"] = "variance",
        subtract_mean: bool = False,
    ) -> None:
        super().__init__(dim)
        self.momentum = require_number("momentum", momentum, above=0, at_most=1)
        self.eps = require_number("eps", eps, at_least=0)
        self.beta = require_number("beta", beta, at_least=0)
        self.gamma = require_choice("gamma", gamma, ("sum", "mean"))
        self.rescale = require_choice("rescale", rescale, ("variance", "printed", "released", "none"))
        self.subtract_mean = require_bool("subtract_mean", subtract_mean)
        self.starts_from_constants = rescale == "released"
        if self.eps == 0 and rescale != "none":
            raise ValueError(f"eps must be above 0 with rescale={rescale}: without variance it would divide by 0")
        self.register_buffer("covariance", torch.zeros(dim, dim, dtype=torch.float32))
        self.register_buffer("deviation", torch.zeros(dim, dtype=torch.float32))
        if subtract_mean:
            self.register_buffer("mean", torch.zeros(dim, dtype=torch.float32))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, h: Tensor) -> Tensor:
        """Scale embeddings [B, d] -> [B, d], centred if asked; in training first update the moving averages."""
        with torch.no_grad(), torch.autocast(h.device.type, enabled=False):
            if self.training:
                self._update_statistics(h.detach().to(self.covariance.dtype))
            theta = self._compute_scale()  # [d]
        return ((h - self.mean if self.subtract_mean else h) * theta).to(h.dtype)

    def _update_statistics(self, h: Tensor) -> None:
        mean, centred = center_batch(h)
        weight: float | Tensor = self.momentum
        if not self.starts_from_constants:
            weight = torch.where(self.batches == 0, 1.0, self.momentum)
        self.deviation.lerp_(batch_mean(centred.square()).sqrt(), weight)
        self.covariance.lerp_(batch_covariance(centred), weight)
        if self.subtract_mean:
            self.mean.lerp_(mean, weight)
        self.batches += 1

    def _compute_scale(self) -> Tensor:
        released = self.rescale == "released"
        inverse_deviation = torch.where(self.deviation > SMALLEST_DEVIATION, 1 / self.deviation, 0.0)
        rho = self.covariance * inverse_deviation[:, None] * inverse_deviation  # [d, d]
        if released:
            rho = rho.clamp(-1, 1)
        gamma = rho.square().sum(1) if self.gamma == "sum" else rho.square().mean(1)  # Eq. 4
        size = self.deviation * gamma + self.eps
        theta = torch.where(size <= 0, 1.0, size**-self.beta)  # Eq. 6; Eq. 5 with eps = 0 and beta = 1
        variance = self.covariance.diagonal() if released else self.deviation.square()
        total, scaled_total = variance.sum(), (variance * theta.square()).sum()
        ratio = total / (scaled_total + self.eps if released else scaled_total)
        if self.rescale != "none":
            theta = theta * (ratio if self.rescale == "printed" else ratio.sqrt())  # Eq. 7
        return torch.where(total == 0, torch.ones_like(theta), theta)  # NaN statistics show: they give NaN
