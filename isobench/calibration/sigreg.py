"""SIGReg: a loss that draws embeddings towards N(0, I), by tests of random projections (Balestriero & LeCun 2025)."""

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32, require_number, require_whole_number
from isobench.calibration.batch_statistics import count_batch_rows, sum_over_processes_with_grad


class SIGReg(Calibration):
    """Add strength * the mean, over random unit directions, of how far the projections a . h_i are from N(0, 1).

    The distance of N projections is the statistic of Epps & Pulley (1983), N * integral from -t_max to t_max of
    |phi(t) - exp(-t^2 / 2)|^2 exp(-t^2 / 2) dt, with phi(t) the mean of exp(i t a . h_n), by the trapezoidal rule at
    evenly spaced points (LeJEPA, Algorithm 1). N counts the rows of the whole batch.

    Each call in training draws new directions, as in Algorithm 1 from the number of earlier calls alone. This number
    is in the state, so a run that is resumed draws the same directions; so do all processes, and runs of other
    seeds. The result is a smooth, bounded function of the embeddings, also for one row and for equal rows. Computed
    in float32 or better.

    Args:
        dim: width d of the embeddings.
        strength: above 0 it draws embeddings towards N(0, I), below 0 away from it; 0 changes nothing. The default
            is our choice.
        directions: number of directions of each call.
        points: number of points of the integral, an odd number of at least 3.
        t_max: bound of the integral, above 0.
    """

    def __init__(
        self, dim: int, strength: float = 0.05, directions: int = 256, points: int = 17, t_max: float = 5.0
    ) -> None:
        super().__init__(dim)
        self.strength, self.t_max = require_number("strength", strength), require_number("t_max", t_max, above=0)
        self.directions = require_whole_number("directions", directions)
        self.points = require_whole_number("points", points, at_least=3)
        if self.points % 2 == 0:
            raise ValueError(f"points must be an odd number, not {points}")
        self.calls = 0  # in training so far

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
            weights = normal * (2 * self.t_max / half)
            weights = torch.cat([weights[:-1], weights[-1:] / 2])
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
