"""Penalties: on the cosines of a matrix's rows, and on the directions, covariance or distribution of embeddings."""

import math
from typing import Any

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32, require_number, require_whole_number
from isobench.calibration.batch_statistics import (
    center_batch,
    count_batch_rows,
    gather_rows_with_grad,
    sum_over_processes_with_grad,
)
from isobench.common.linalg import row_norms


class CosineRegularization(Calibration):
    """Penalise R = strength / V^2 * sum over i != j of cos(w_i, w_j), for the rows w_i of a matrix [V, d].

    Source: On Isotropy Calibration of Transformers, Sec. 3. It is computed as strength (|s|^2 - V) / V^2 with s the
    sum of the unit rows, in O(V d) instead of O(V^2 d) (Too Much in Common, App. A, which misplaces the -V). A zero
    row has no direction: its cosines count as 0, and it gets no gradient. No paper publishes the strength.

    Args:
        strength: lambda in the paper, 0 or more.
    """

    def __init__(self, dim: int, strength: float = 1.0) -> None:
        super().__init__(dim)
        self.strength = require_number("strength", strength, at_least=0)

    def penalty(self, weight: Tensor) -> Tensor:
        """Compute R of a matrix: [V, d] -> scalar."""
        mean_cosine: Tensor = _MeanCosine.apply(weight)  # type: ignore[no-untyped-call]
        return self.strength * mean_cosine


class _MeanCosine(torch.autograd.Function):
    """The sum over i != j of cos(w_i, w_j), divided by V^2, with a gradient that needs little memory.

    The gradient for row i is 2 / (V^2 |w_i|) (s - u_i (u_i . s)), with u_i = w_i / |w_i| and s the sum of the u_i.
    Row lengths are computed in float64, so that no square overflows. The gradient is the only [V, d] tensor made.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
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
        weight, inverse_lengths, unit_sum = ctx.saved_tensors
        with torch.autocast(weight.device.type, enabled=False):
            scale = inverse_lengths * (2 * gradient / len(weight) ** 2)  # 2 / (V^2 |w_i|), [V]
            result: Tensor = promote_to_float32(weight) * inverse_lengths[:, None]  # u_i, then in place the gradient
            cosine_sums = result @ unit_sum  # u_i . s, [V]
            result.mul_((-cosine_sums * scale)[:, None]).addr_(scale, unit_sum)
            return result.to(weight.dtype)


class Uniformity(Calibration):
    """Add strength * log(mean over i < j of exp(-t |u_i - u_j|^2)), with u_i = h_i / |h_i|, of the whole batch.

    The logarithm is between -4t (reached only by two opposite rows) and 0 (all rows have one direction). A zero row
    has no direction: it is in no pair and gets no gradient. Without a pair the result is 0. Computed in float32 or
    better.

    Args:
        strength: above 0 it spreads the directions, below 0 it gathers them; both are bounded. 0 changes nothing.
        t: above 0; the paper uses 2.
    """

    least_batch = 3  # two rows are one pair

    def __init__(self, dim: int, strength: float = 1.0, t: float = 2.0) -> None:
        super().__init__(dim)
        self.strength, self.t = require_number("strength", strength), require_number("t", t, above=0)

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


class Decorrelation(Calibration):
    """Penalise small variances and correlated dimensions: strength (variance_weight v + covariance_weight c).

    v = 1/d sum over j of max(0, gamma - sqrt(C_jj + epsilon)) and c = 1/d sum over i != j of C_ij^2, with C the
    covariance of the whole batch, divided by its row count less one (VICReg, Eqs. 1 to 4). Both are 0 for
    embeddings whose covariance is diagonal with deviations of at least gamma, so this is the penalty that
    corresponds to whitening. One row has no covariance: the result is then 0. Computed in float32 or better.

    Args:
        strength: 0 for plain fine-tuning. It can't be negative: c has no upper bound, so training would diverge.
        variance_weight: weight of v, 0 or more.
        covariance_weight: of c. The paper weights v by 25 and c by 1; the defaults are in this proportion.
        gamma: the deviation that every dimension should reach.
        epsilon: added to the variances, above 0, so that the gradient stays finite where a variance is 0.
    """

    least_batch = 3  # of two rows all dimensions are correlated

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
        self.epsilon = require_number("epsilon", epsilon, above=0)

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


class SIGReg(Calibration):
    """SIGReg (Balestriero & LeCun 2025): draw embeddings towards N(0, I), by tests of random projections.

    It adds strength * the mean, over random unit directions, of how far the projections a . h_i are from N(0, 1). The
    distance of N projections is the statistic of Epps & Pulley (1983), N * integral from -t_max to t_max of
    |phi(t) - exp(-t^2 / 2)|^2 exp(-t^2 / 2) dt, with phi(t) the mean of exp(i t a . h_n), by the trapezoidal rule at
    evenly spaced points (LeJEPA, Algorithm 1). N counts the rows of the whole batch.

    Each call in training draws new directions, as in Algorithm 1 from the number of earlier calls alone. This number
    is in the state, so a run that is resumed draws the same directions; so do all processes, and runs of other
    seeds. The result is a smooth, bounded function of the embeddings, also for one row and for equal rows. Computed
    in float32 or better.

    Args:
        strength: above 0 it draws embeddings towards N(0, I), below 0 away from it; 0 changes nothing. The default
            is our choice.
        directions: number of directions of each call.
        points: number of points of the integral, an odd number of at least 3.
        t_max: bound of the integral, above 0.
    """

    least_batch = 3  # no two numbers look normal

    def __init__(
        self, dim: int, strength: float = 0.05, directions: int = 256, points: int = 17, t_max: float = 5.0
    ) -> None:
        super().__init__(dim)
        self.strength, self.t_max = require_number("strength", strength), require_number("t_max", t_max, above=0)
        self.directions = require_whole_number("directions", directions)
        self.points = require_whole_number("points", points, at_least=3)
        if self.points % 2 == 0:  # one of them must be t = 0; the others come in pairs, of which one is computed
            raise ValueError(f"points must be an odd number, not {points}")
        self.calls = 0  # in training so far: the seed of the next call's directions

    def get_extra_state(self) -> Tensor:
        """Return the number of calls so far, for a checkpoint."""
        return torch.tensor(self.calls)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the number of calls from a checkpoint."""
        self.calls = int(state)

    def regularize(self, h: Tensor) -> Tensor:
        """Compute the loss of embeddings [B, d], a scalar; in training the next call draws other directions."""
        with torch.autocast(h.device.type, enabled=False):
            x = promote_to_float32(h)
            projections = x @ self.draw_directions(x)  # [B, M]
            if self.training:
                self.calls += 1
            # The integrand is symmetric, and 0 at t = 0: half of the points are enough.
            half = self.points // 2
            t = torch.linspace(0, self.t_max, half + 1, dtype=x.dtype, device=x.device)[1:]  # [T]
            normal = (-t.square() / 2).exp()
            weights = normal * (2 * self.t_max / half)  # of t and -t together
            weights = torch.cat([weights[:-1], weights[-1:] / 2])  # the trapezoidal rule halves the last one
            angles = projections[:, :, None] * t  # [B, M, T]
            count = count_batch_rows(h)
            sums = sum_over_processes_with_grad(torch.stack([angles.cos().sum(0), angles.sin().sum(0)]))
            real, imaginary = (sums / count).unbind()  # of phi, [M, T]
            distances = (real - normal).square() + imaginary.square()
            statistic: Tensor = count * (distances @ weights).mean()
            return self.strength * statistic

    @torch.no_grad()
    def draw_directions(self, x: Tensor) -> Tensor:
        """Draw unit vectors for the next call, [d, directions] as columns, of the type and on the device of ``x``."""
        generator = torch.Generator(x.device).manual_seed(self.calls)
        normal = torch.randn(self.dim, self.directions, generator=generator, dtype=x.dtype, device=x.device)
        directions: Tensor = normal / torch.linalg.vector_norm(normal, dim=0)
        return directions
