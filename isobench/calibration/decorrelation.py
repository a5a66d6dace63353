"""Decorrelation: the variance and covariance terms of VICReg (Bardes, Ponce & LeCun 2022)."""

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32, require_number
from isobench.calibration.batch_statistics import center_batch, count_batch_rows, sum_over_processes_with_grad


class Decorrelation(Calibration):
    """Penalise small variances and correlated dimensions: strength (variance_weight v + covariance_weight c).

    v = 1/d sum over j of max(0, gamma - sqrt(C_jj + epsilon)) and c = 1/d sum over i != j of C_ij^2, with C the
    covariance of the whole batch, divided by its row count less one (VICReg, Eqs. 1 to 4). Both are 0 for
    embeddings whose covariance is diagonal with deviations of at least gamma, so this is the penalty that
    corresponds to whitening. One row has no covariance: the result is then 0. Computed in float32 or better.

    Args:
        dim: width d of the embeddings.
        strength: 0 for plain fine-tuning. It can't be negative: c has no upper bound, so training would diverge.
        variance_weight: weight of v.
        covariance_weight: weight of c. The paper weights v by 25 and c by 1; the defaults are in this proportion.
        gamma: the deviation that every dimension should reach.
        epsilon: added to the variances, above 0, so that the gradient stays finite where a variance is 0.

    Raises:
        ValueError: if a setting is not a finite number, or is out of range.
    """

    def __init__(
        self,
        dim: int,
        strength: float = 1.0,
        variance_weight: float = 1.0,
        covariance_weight: float = 0.04,
        gamma: float = 1.0,
        epsilon: float = 1e-4,
    ) -> None:
        super().__init__(dim)
        self.strength = require_number("strength", strength, at_least=0)
        self.variance_weight = require_number("variance_weight", variance_weight, at_least=0)
        self.covariance_weight = require_number("covariance_weight", covariance_weight, at_least=0)
        self.gamma = require_number("gamma", gamma, at_least=0)
        self.epsilon = require_number("epsilon", epsilon, at_least=0)
        if self.epsilon == 0:
            raise ValueError("epsilon must be above 0")

    def regularize(self, h: Tensor) -> Tensor:
        """Compute the penalty of embeddings [B, d], a scalar."""
        count = count_batch_rows(h)
        if count < 2:
            return torch.zeros((), device=h.device)
        with torch.autocast(h.device.type, enabled=False):
            x = promote_to_float32(h)
            # The deviations sum to 0, so the covariance has no gradient with respect to the mean: it is a constant.
            centred = x - center_batch(x.detach())[0]
            covariance = sum_over_processes_with_grad(centred.T @ centred) / (count - 1)
            variances = covariance.diagonal()
            hinge = (self.gamma - (variances + self.epsilon).sqrt()).relu().mean()
            correlated: Tensor = (covariance - variances.diag()).square().sum() / self.dim
            return self.strength * (self.variance_weight * hinge + self.covariance_weight * correlated)
