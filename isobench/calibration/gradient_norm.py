"""Gradient normalisation: the forward pass is the identity, and the backward pass balances the dimensions."""

from typing import Any

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32
from isobench.calibration.batch_statistics import batch_mean


class GradientNorm(Calibration):
    """Rescale the gradient of each dimension j: g_j -> g_j (mean(mu) / (mu_j + eps))^alpha.

    mu_j is the mean of |g_j| over the batch, and mean(mu) the mean over dimensions (Efficient Task Adaptation with
    Normalization, Sec. 4). The forward pass is exactly the identity, and a gradient that is zero everywhere stays so.
    The paper does not state eps; here it is in units of mean(mu), since gradients have no fixed scale.

    Args:
        dim: width d of the embeddings.
        alpha: strength; the paper uses 0.5 and 1.
        eps: added to mu_j, in units of mean(mu).

    Raises:
        ValueError: if alpha is not finite, or eps is not above 0.
    """

    def __init__(self, dim: int, alpha: float = 1.0, eps: float = 1e-6) -> None:
        super().__init__(dim)
        self.alpha, self.eps = float(alpha), float(eps)
        if not (abs(self.alpha) < float("inf") and 0 < self.eps < float("inf")):
            raise ValueError(f"alpha must be a number and eps above 0, not alpha={alpha}, eps={eps}")

    def forward(self, h: Tensor) -> Tensor:
        """Return the embeddings [B, d] unchanged; their gradient will be rescaled."""
        same: Tensor = GradientEqualization.apply(h, self.alpha, self.eps)  # type: ignore[no-untyped-call]
        return same


class GradientEqualization(torch.autograd.Function):
    """The identity, with a backward pass that rescales each dimension of the gradient."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, alpha: float, eps: float) -> Tensor:
        """Return [B, d] unchanged."""
        ctx.alpha, ctx.eps = alpha, eps
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Rescale the gradient [B, d] -> [B, d], in float32 or better."""
        g = promote_to_float32(gradient)
        mu = batch_mean(g.abs())  # [d], over the batch of all processes
        mean = mu.mean()
        scale = torch.where(mean > 0, (mean / (mu + ctx.eps * mean)) ** ctx.alpha, 1.0)
        return (g * scale).to(gradient.dtype), None, None
