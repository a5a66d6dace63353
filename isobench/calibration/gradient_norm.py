"""Gradient normalisation: the forward pass is untouched, the gradient's dimensions are evened out."""

from typing import Any

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32
from isobench.calibration.batch_statistics import batch_mean


class GradientNorm(Calibration):
    """g'_j = g_j (mean(mu) / (mu_j + eps))^alpha, mu_j the batch mean of |g_j| (adaptation paper, Sec. 4).

    The forward pass is exactly the identity. Where no gradient flows at all, none is made up. eps, which the
    paper does not state, is relative to mean(mu): gradients have no scale of their own.

    Args:
        dim: width d of the embedding.
        alpha: strength; the paper has 0.5 and 1.
        eps: lower bound of mu_j, in units of mean(mu).

    Raises:
        ValueError: an alpha that is no number, or an eps not above 0.
    """

    def __init__(self, dim: int, alpha: float = 1.0, eps: float = 1e-6) -> None:
        super().__init__(dim)
        self.alpha, self.eps = float(alpha), float(eps)
        if not (abs(self.alpha) < float("inf") and 0 < self.eps < float("inf")):
            raise ValueError(f"alpha must be a number and eps above 0, not alpha={alpha}, eps={eps}")

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> the same [B, d]."""
        return GradientEqualization.apply(h, self.alpha, self.eps)


class GradientEqualization(torch.autograd.Function):
    """Identity whose backward scales the dimensions."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, alpha: float, eps: float) -> Tensor:
        """[B, d] -> [B, d]."""
        ctx.alpha, ctx.eps = alpha, eps
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """[B, d] -> [B, d]; the means are float32 or better."""
        given = promote_to_float32(gradient)
        mu = batch_mean(given.abs())  # (d,), over the whole batch
        mean = mu.mean()
        scale = torch.where(mean > 0, (mean / (mu + ctx.eps * mean)) ** ctx.alpha, 1.0)
        return (given * scale).to(gradient.dtype), None, None
