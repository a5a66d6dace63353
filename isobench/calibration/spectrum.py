"""Spectrum control: a penalty that pulls the singular values of a matrix to a chosen decay (Wang et al. 2020)."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from isobench.calibration.base import Calibration, promote_to_float32, require_bool, require_choice, require_number
from isobench.common.linalg import eigh, gram


class SpectrumControl(Calibration):
    """Penalise R = strength * sum over k of (sigma_k - t_k)^2, for the singular values sigma_k of a matrix [V, d].

    k runs from 1 to min(V, d), sigma_k descends, and the target is t_k = c1 k^gamma (``polynomial``) or
    c1 exp(-c2 k^gamma) (``exponential``). Source: On Isotropy Calibration of Transformers, Sec. 3, which publishes
    none of the constants; the defaults are ours.

    Args:
        decay: form of the target, which must not grow with k.
        strength: lambda in the paper, 0 or more.
        c1: scale of the target, 0 or more; None for sigma_1 of the matrix at the first call.
        c2: rate of the exponential decay; leave it out with ``polynomial``.
        gamma: exponent of k; None for -1 (``polynomial``) or 1 (``exponential``).
        start_at_target: True to set the matrix's singular values to the targets before training. A penalty alone
            needs thousands of steps to shrink a classifier, because AdamW moves a weight by about the learning rate
            per step.
        reparametrize: None to train W itself. rho, 0 or more, to train U, sigma and V of W = U diag(sigma) V^T in
            its place (``reparametrize_layer``). sigma_k is then the k-th trained number, and R also has
            rho (|U^T U - I|^2 + |V^T V - I|^2), Frobenius norms. Wang et al. (2020) call their method a
            reparametrization; we have read their abstract only, so this form is ours.
    """

    start: Tensor  # [], c1 where it is None: sigma_1 at the first call, NaN before

    def __init__(
        self,
        dim: int,
        decay: Literal["polynomial", "exponential"] = "polynomial",
        strength: float = 1.0,
        c1: float | None = None,
        c2: float = 1.0,
        gamma: float | None = None,
        start_at_target: bool = False,
        reparametrize: float | None = None,
    ) -> None:
        super().__init__(dim)
        self.decay = require_choice("decay", decay, ("polynomial", "exponential"))
        self.start_at_target = require_bool("start_at_target", start_at_target)
        self.strength = require_number("strength", strength, at_least=0)
        self.c1 = None if c1 is None else require_number("c1", c1, at_least=0)
        self.c2 = require_number("c2", c2, at_least=0)
        if decay == "polynomial":
            self.gamma = require_number("gamma", -1 if gamma is None else gamma, at_most=0)
            if c2 != 1:
                raise ValueError(f"c2={c2} has no effect with decay=polynomial: leave it out")
        else:
            self.gamma = require_number("gamma", 1 if gamma is None else gamma, at_least=0)
        self.reparametrize = None if reparametrize is None else require_number("reparametrize", reparametrize, 0)
        self.reparametrizes_head = self.reparametrize is not None
        self.factors: tuple[Any, ...] = ()  # holds the layer's U, sigma and V; a tuple, so that they stay the layer's
        self.register_buffer("start", torch.tensor(float("nan"), dtype=torch.float64))

    def adjust(self, weight: Tensor) -> None:
        """Set the singular values of a matrix [V, d] to the targets, in place, if ``start_at_target`` is set.

        The singular vectors stay. A singular value of zero stays too, since its vectors are undefined.
        """
        if self.start_at_target:
            vectors, values = _smaller_side_svd(weight)
            target = self._read_target(values)
            ratio = torch.where(values > _compute_noise(values), target / values, 0.0)
            weight.copy_(_mix_smaller_side(weight.double(), (vectors * ratio) @ vectors.T))

    def reparametrize_layer(self, layer: nn.Module) -> None:
        """Replace a layer's parameter ``weight``, [V, d], by U, sigma and V; call it before making the optimiser.

        It does nothing where ``reparametrize`` is None. ``layer.weight`` then still reads W.
        """
        if self.reparametrize is not None:
            parametrize.register_parametrization(layer, "weight", _SingularFactors())
            self.factors = (layer.parametrizations["weight"],)  # type: ignore[index]

    def penalty(self, weight: Tensor) -> Tensor:
        """Compute R of a matrix in float64: [V, d] -> scalar, float32."""
        with torch.autocast(weight.device.type, enabled=False):
            if self.reparametrize is not None:
                return self._penalize_factors(self.reparametrize).to(torch.float32)
            vectors, values = _smaller_side_svd(weight.detach())
            target = self._read_target(values)
            distance: Tensor = _SpectrumDistance.apply(weight, vectors, values, target)  # type: ignore[no-untyped-call]
            return (self.strength * distance).to(torch.float32)

    def _penalize_factors(self, rho: float) -> Tensor:
        """Compute R from the trained sigma, U and V; float64."""
        if not self.factors:
            raise RuntimeError("with reparametrize, call reparametrize_layer(layer) before penalty")
        left, values, right = (getattr(self.factors[0], f"original{number}").double() for number in range(3))
        identity = torch.eye(len(values), dtype=values.dtype, device=values.device)
        skew: Tensor = (left.T @ left - identity).square().sum() + (right.T @ right - identity).square().sum()
        distance: Tensor = (values - self._read_target(values.detach())).square().sum()
        return self.strength * distance + rho * skew

    def _read_target(self, values: Tensor) -> Tensor:
        """Return the targets for singular values [n], descending; the first call sets c1 where it is None."""
        if self.c1 is None:
            self.start.copy_(torch.where(self.start.isnan(), values[0], self.start))
        return self.compute_target(len(values), values.device)

    def compute_target(self, count: int, device: torch.device) -> Tensor:
        """Compute t_1 to t_count, [count] float64."""
        k = torch.arange(1, count + 1, dtype=torch.float64, device=device)
        powers = k**self.gamma
        decay = powers if self.decay == "polynomial" else torch.exp(-self.c2 * powers)
        return decay * (self.start.to(device) if self.c1 is None else self.c1)


class _SingularFactors(nn.Module):
    """Parametrise a matrix [V, d] as U diag(sigma) V^T: U [V, n], sigma [n] and V [d, n], with n = min(V, d)."""

    def forward(self, left: Tensor, values: Tensor, right: Tensor) -> Tensor:
        """Compute the matrix."""
        with torch.autocast(left.device.type, enabled=False):
            return (left * values) @ right.T

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Decompose the matrix with which training starts."""
        left, values, right = torch.linalg.svd(weight.double(), full_matrices=False)
        left, right = left.contiguous(), right.T.contiguous()
        return left.to(weight.dtype), values.to(weight.dtype), right.to(weight.dtype)


def _smaller_side_svd(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the singular vectors of the smaller side of a matrix [V, d], and its singular values, in float64.

    The vectors are columns, [n, n] with n = min(V, d), right ones if d <= V, else left ones; the values descend, [n].
    """
    eigenvalues, vectors = eigh(gram(weight if weight.shape[1] <= weight.shape[0] else weight.T))
    return vectors.flip(1), eigenvalues.clamp_min(0).sqrt().flip(0)


def _mix_smaller_side(matrix: Tensor, mix: Tensor) -> Tensor:
    """Multiply a matrix [V, d] by one of its smaller side, [n, n]: from the right if d <= V, else from the left."""
    return matrix @ mix if matrix.shape[1] <= matrix.shape[0] else mix @ matrix


def _compute_noise(values: Tensor) -> Tensor:
    """Compute the size below which singular values [n] are noise.

    They come from a Gram matrix, whose eigenvalues are exact to eps times the largest.
    """
    eps: float = torch.finfo(torch.float64).eps
    return values.max() * math.sqrt(len(values) * eps)


class _SpectrumDistance(torch.autograd.Function):
    """The sum of (sigma_k - t_k)^2, with its gradient U diag(2 (sigma - t)) V^T computed from one side's vectors.

    Repeated singular values need no special care. A zero singular value gets no gradient, since its vectors on the
    other side are undefined.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, vectors: Tensor, values: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(weight, vectors, values, target)
        return (values - target).square().sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        weight, vectors, values, target = ctx.saved_tensors
        factor = torch.where(values > _compute_noise(values), 2 * (values - target) / values, 0.0)
        mix = (vectors * factor) @ vectors.T * gradient  # [n, n]
        with torch.autocast(weight.device.type, enabled=False):
            matrix = promote_to_float32(weight)  # its product needs no more precision than the weights have
            result = _mix_smaller_side(matrix, mix.to(matrix.dtype))
        return result.to(weight.dtype), None, None, None
