"""Uniformity on the sphere: a loss that pushes the directions of embeddings apart (Wang & Isola 2020)."""

import math

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32, require_number
from isobench.calibration.batch_statistics import gather_rows_with_grad


class Uniformity(Calibration):
    """Add strength * log(mean over i < j of exp(-t |u_i - u_j|^2)), with u_i = h_i / |h_i|, of the whole batch.

    The logarithm is between -4t (reached only by two opposite rows) and 0 (all rows have one direction). A zero row
    has no direction: it is in no pair and gets no gradient. Without a pair the result is 0. Computed in float32 or
    better.

    Args:
        dim: width d of the embeddings.
        strength: above 0 it spreads the directions, below 0 it gathers them; both are bounded. 0 changes nothing.
        t: above 0; the paper uses 2.

    Raises:
        ValueError: if strength or t is not a finite number, or t is not above 0.
    """

    def __init__(self, dim: int, strength: float = 1.0, t: float = 2.0) -> None:
        super().__init__(dim)
        self.strength, self.t = require_number("strength", strength), require_number("t", t)
        if self.t <= 0:
            raise ValueError(f"t must be above 0, not {t}")

    def regularize(self, h: Tensor) -> Tensor:
        """Compute the loss of embeddings [B, d], a scalar."""
        with torch.autocast(h.device.type, enabled=False):
            x = gather_rows_with_grad(promote_to_float32(h))  # [N, d], of all processes
            largest = x.detach().abs().amax(1, keepdim=True)  # divided by it, no entry's square overflows
            directed = largest != 0  # [N, 1]
            x = x / torch.where(directed, largest, 1.0)
            lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True)
            units = x / torch.where(directed, lengths, 1.0)
            exponents = -2 * self.t * (1 - units @ units.T)  # -t |u_i - u_j|^2, [N, N]
            same = torch.eye(len(x), dtype=torch.bool, device=x.device)
            is_pair = directed & directed.T & ~same  # each pair is in it twice
            count = is_pair.sum(dtype=x.dtype)
            # Without a pair every exponent is replaced by 0, because the gradient of log(0) is not a number.
            kept = exponents.masked_fill(~is_pair, -math.inf).masked_fill(count == 0, 0.0)
            mean = kept.flatten().logsumexp(0) - count.clamp_min(1).log()
            return self.strength * torch.where(count > 0, mean, 0.0)
