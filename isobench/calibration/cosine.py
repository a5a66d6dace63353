"""Cosine regularisation: a penalty on the mean cosine between the rows of a matrix (Gao et al. 2019)."""

from typing import Any

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32
from isobench.common.linalg import row_norms


class CosineRegularization(Calibration):
    """Penalise R = strength / V^2 * sum over i != j of cos(w_i, w_j), for the rows w_i of a matrix [V, d].

    Source: On Isotropy Calibration of Transformers, Sec. 3. It is computed as strength (|s|^2 - V) / V^2 with s the
    sum of the unit rows, in O(V d) instead of O(V^2 d) (Too Much in Common, App. A, which misplaces the -V). A zero
    row has no direction: its cosines count as 0, and it gets no gradient. No paper publishes the strength.

    Args:
        dim: width d of the embeddings.
        strength: lambda in the paper.

    Raises:
        ValueError: if strength is negative or not finite.
    """

    def __init__(self, dim: int, strength: float = 1.0) -> None:
        super().__init__(dim)
        self.strength = float(strength)
        if not 0 <= self.strength < float("inf"):
            raise ValueError(f"strength must be a number of at least 0, not {strength}")

    def penalty(self, weight: Tensor) -> Tensor:
        """Compute R of a matrix: [V, d] -> scalar."""
        mean_cosine: Tensor = MeanCosine.apply(weight)  # type: ignore[no-untyped-call]
        return self.strength * mean_cosine


class MeanCosine(torch.autograd.Function):
    """The sum over i != j of cos(w_i, w_j), divided by V^2, with a gradient that needs little memory.

    The gradient for row i is 2 / (V^2 |w_i|) (s - u_i (u_i . s)), with u_i = w_i / |w_i| and s the sum of the u_i.
    Row lengths are computed in float64, so that no square overflows. The gradient is the only [V, d] tensor made.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        """Compute the mean: [V, d] -> scalar."""
        with torch.autocast(weight.device.type, enabled=False):
            matrix = promote_to_float32(weight.detach())
            lengths = row_norms(matrix)  # [V]
            shortest = torch.finfo(matrix.dtype).tiny  # 1 / length overflows below it
            inverse_lengths = torch.where(lengths > shortest, 1 / lengths, 0.0).to(matrix.dtype)
            unit_sum: Tensor = matrix.T @ inverse_lengths  # s, [d]
            ctx.save_for_backward(weight, inverse_lengths, unit_sum)
            return (unit_sum.square().sum() - (inverse_lengths > 0).sum()) / len(weight) ** 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Compute the matrix's gradient from the scalar's: [] -> [V, d]."""
        weight, inverse_lengths, unit_sum = ctx.saved_tensors
        with torch.autocast(weight.device.type, enabled=False):
            scale = inverse_lengths * (2 * gradient / len(weight) ** 2)  # 2 / (V^2 |w_i|), [V]
            result: Tensor = promote_to_float32(weight) * inverse_lengths[:, None]  # u_i, then in place the gradient
            cosine_sums = result @ unit_sum  # u_i . s, [V]
            result.mul_((-cosine_sums * scale)[:, None]).addr_(scale, unit_sum)
            return result.to(weight.dtype)
