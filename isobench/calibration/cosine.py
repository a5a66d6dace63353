"""Cosine regularisation: a penalty on the mean cosine between a matrix's rows (Gao et al. 2019)."""

from typing import Any

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32
from isobench.common.linalg import row_norms


class CosineRegularization(Calibration):
    """R = strength / V^2 * sum over i != j of cos(w_i, w_j), of the target matrix [V, d].

    In closed form strength (|s|^2 - V) / V^2 with s the sum of the unit rows, in O(V d) instead of O(V^2 d)
    (isotropy-calibration paper, Sec. 3; Too-much-in-common, App. A, where the -V is misplaced). A zero row has
    no direction: its cosines count as 0, and it gets no gradient. The papers don't publish the strength.

    Args:
        dim: width d of the embedding.
        strength: the paper's lambda.

    Raises:
        ValueError: a strength below 0.
    """

    def __init__(self, dim: int, strength: float = 1.0) -> None:
        super().__init__(dim)
        self.strength = float(strength)
        if not 0 <= self.strength < float("inf"):
            raise ValueError(f"strength must be a number of at least 0, not {strength}")

    def penalty(self, weight: Tensor) -> Tensor:
        """[V, d] -> scalar."""
        return self.strength * MeanCosine.apply(weight)


class MeanCosine(torch.autograd.Function):
    """Sum over i != j of cos(w_i, w_j), over V^2. Gradient 2 / (V^2 |w_i|) (s - u_i (u_i . s)), u_i = w_i / |w_i|.

    Lengths are float64, so that no square overflows; nothing of size V x d is made but the gradient.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        """[V, d] -> scalar."""
        with torch.autocast(weight.device.type, enabled=False):
            matrix = promote_to_float32(weight.detach())
            norms = row_norms(matrix)  # (V,)
            smallest = torch.finfo(matrix.dtype).tiny  # below, 1 / length is no number
            inverse = torch.where(norms > smallest, 1 / norms, 0.0).to(matrix.dtype)
            total = matrix.T @ inverse  # (d,)
            ctx.save_for_backward(weight, inverse, total)
            return (total.square().sum() - (inverse > 0).sum()) / len(weight) ** 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Scalar -> [V, d]."""
        weight, inverse, total = ctx.saved_tensors
        with torch.autocast(weight.device.type, enabled=False):
            scale = inverse * (2 * gradient / len(weight) ** 2)  # (V,)
            result = promote_to_float32(weight) * inverse[:, None]
            along = result @ total  # (V,)
            return result.mul_((-along * scale)[:, None]).addr_(scale, total).to(weight.dtype)
