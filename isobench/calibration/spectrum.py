"""Spectrum control: a penalty that pulls a matrix's singular values to a decay of their own (Wang et al. 2020)."""

from typing import Any, Literal

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32
from isobench.common.linalg import eigh, gram


class SpectrumControl(Calibration):
    """R = strength * sum over k of (sigma_k - t_k)^2 of the target matrix [V, d], k = 1..min(V, d).

    t_k = c1 k^gamma (``polynomial``) or c1 exp(-c2 k^gamma) (``exponential``); isotropy-calibration paper,
    Sec. 3. It publishes none of the constants: the defaults are ours. ``c1: null`` is sigma_1 of the matrix as
    training starts.

    Args:
        dim: width d of the embedding.
        decay: form of the target.
        strength: the paper's lambda.
        c1, c2, gamma: the target's constants; ``polynomial`` decays for gamma < 0.

    Raises:
        ValueError: an unknown decay, or a constant that is no number.
    """

    start: Tensor  # []

    def __init__(
        self,
        dim: int,
        decay: Literal["polynomial", "exponential"] = "polynomial",
        strength: float = 1.0,
        c1: float | None = None,
        c2: float = 1.0,
        gamma: float | None = None,
    ) -> None:
        super().__init__(dim)
        if decay not in ("polynomial", "exponential"):
            raise ValueError(f"decay must be polynomial or exponential, not {decay!r}")
        self.decay, self.strength, self.c1, self.c2 = decay, float(strength), c1, float(c2)
        self.gamma = float(gamma if gamma is not None else (-1.0 if decay == "polynomial" else 1.0))
        if not 0 <= self.strength < float("inf") or (c1 is not None and not 0 <= c1 < float("inf")):
            raise ValueError(f"strength and c1 must be numbers of at least 0, not {strength} and {c1}")
        self.register_buffer("start", torch.tensor(float("nan"), dtype=torch.float64))

    def penalty(self, weight: Tensor) -> Tensor:
        """[V, d] -> scalar, in float64 inside."""
        with torch.autocast(weight.device.type, enabled=False):
            vectors, values = smaller_side_svd(weight.detach())
            if self.c1 is None:
                self.start.copy_(torch.where(self.start.isnan(), values[0], self.start))
            target = self.target(len(values), weight.device)
            return (self.strength * SpectrumDistance.apply(weight, vectors, values, target)).to(torch.float32)

    def target(self, count: int, device: torch.device) -> Tensor:
        """t_1..t_count, [count] float64."""
        k = torch.arange(1, count + 1, dtype=torch.float64, device=device)
        powers = k**self.gamma
        shape = powers if self.decay == "polynomial" else torch.exp(-self.c2 * powers)
        return shape * (self.start.to(device) if self.c1 is None else self.c1)


def smaller_side_svd(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Singular vectors [n, n] on the smaller side of a matrix, and its singular values [n], descending; float64."""
    eigenvalues, vectors = eigh(gram(weight if weight.shape[1] <= weight.shape[0] else weight.T))
    return vectors.flip(1), eigenvalues.clamp_min(0).sqrt().flip(0)


class SpectrumDistance(torch.autograd.Function):
    """sum (sigma_k - t_k)^2. Gradient U diag(2 (sigma - t)) V^T, from the eigenvectors of one side only.

    Repeated singular values do no harm; a zero one, whose vectors on the other side are undefined, gets none.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, vectors: Tensor, values: Tensor, target: Tensor) -> Tensor:
        """Scalar, float64."""
        ctx.save_for_backward(weight, vectors, values, target)
        return (values - target).square().sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Scalar -> [V, d]."""
        weight, vectors, values, target = ctx.saved_tensors
        # A Gram matrix's eigenvalues are exact to eps of the largest: below, a value is rounding noise.
        noise = values.max() * (len(values) * torch.finfo(torch.float64).eps) ** 0.5
        factor = torch.where(values > noise, 2 * (values - target) / values, 0.0)
        mix = (vectors * factor) @ vectors.T * gradient  # (n, n)
        with torch.autocast(weight.device.type, enabled=False):
            matrix = promote_to_float32(weight)  # the gradient itself is no more precise than the weights
            mix = mix.to(matrix.dtype)
            result = matrix @ mix if weight.shape[1] <= weight.shape[0] else mix @ matrix
        return result.to(weight.dtype), None, None, None
