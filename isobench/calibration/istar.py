"""I-STAR: make embeddings more or less isotropic by a term of the loss (Rudman & Eickhoff, ICLR 2024)."""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from isobench.calibration.base import (
    Calibration,
    promote_to_float32,
    require_choice,
    require_number,
    require_whole_number,
)
from isobench.calibration.batch_statistics import (
    center_batch,
    count_batch_rows,
    max_over_processes,
    sample_covariance,
    sum_over_processes,
)
from isobench.common.linalg import gram_in_own_precision

# How many rows the target covariance is taken from, by scope. The authors' code takes 250,000 tokens; sentences are
# our choice: 2,000 are several times as many as dimensions, and a fraction of an epoch's cost.
DEFAULT_SAMPLES = {"cls": 2_000, "tokens": 250_000}


class IStar(Calibration):
    """Add strength * (1 - IsoScore*) of the points of a batch to the loss.

    IsoScore* = (r^2 - 1) / (d - 1), with r^2 = tr(S)^2 / |S|_F^2 and S = (1 - zeta) C + zeta C0. C is the covariance
    of the points, divided by N - 1. C0 is that of a larger sample, taken from the current model at the start of every
    epoch, without a gradient. IsoScore* is 1 if S is a multiple of the identity and 0 if all variance is in one
    direction. This closed form equals what the authors' code computes from the singular values of S.

    A strength above 0 makes the points more isotropic, one below 0 less. With zeta = 1 there is no gradient. Before
    C0 is taken it is 0, and IsoScore* is that of the batch alone. Without any variance in S the term is 0.

    Args:
        dim: width d of the embeddings, at least 2.
        strength: factor of the term, of either sign. The paper calls it lambda.
        zeta: weight of C0, 0 to 1.
        scope: which points. ``cls``: the embeddings that the method is given. ``tokens``: the outputs of all layers
            but the embedding lookup for all tokens but padding, together; the method must stand before the pooler.
        sample: rows that C0 is taken from, at least 2; null for 2,000 with ``cls`` and 250,000 with ``tokens``.
    """

    target_covariance: Tensor  # C0, [d, d]

    def __init__(
        self,
        dim: int,
        strength: float = 1.0,
        zeta: float = 0.2,
        scope: Literal["cls", "tokens"] = "cls",
        sample: int | None = None,
    ) -> None:
        super().__init__(dim)
        require_whole_number("dim", dim, at_least=2)
        self.strength = require_number("strength", strength)
        self.zeta = require_number("zeta", zeta, at_least=0, at_most=1)
        self.reads_token_states = require_choice("scope", scope, ("cls", "tokens")) == "tokens"
        self.least_batch = 1 if self.reads_token_states else 3  # two rows differ in one direction
        rows = DEFAULT_SAMPLES[scope] if sample is None else require_whole_number("sample", sample, at_least=2)
        self.epoch_sample = rows if self.zeta else 0
        self.register_buffer("target_covariance", torch.zeros(dim, dim, dtype=torch.float32))

    def prepare(self, embeddings: Iterable[Tensor]) -> None:
        """Take C0 from a sample, batches [B, d] of this process; every process gets the covariance of all rows."""
        self.target_covariance.copy_(sample_covariance(self.read_batches(embeddings), self.dim))

    def regularize(self, h: Tensor) -> Tensor:
        """Compute strength * (1 - IsoScore*) of the points of the whole batch: [N, d] -> scalar."""
        anisotropy: Tensor = _Anisotropy.apply(h, self.target_covariance, self.zeta)  # type: ignore[no-untyped-call]
        return self.strength * anisotropy


class _Anisotropy(torch.autograd.Function):
    """1 - IsoScore* of points [N, d], with a gradient in closed form: no eigendecomposition is needed.

    With S as in ``IStar``, its derivative for S is 2 tr(S) / ((d - 1) |S|_F^2) (tr(S) / |S|_F^2 S - I), and that of S
    for the points is the one of a covariance. IsoScore* has no unit, so all is divided by a common length first: no
    square overflows. Statistics are of all processes, in float32 or better.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, target: Tensor, zeta: float) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            centred = center_batch(promote_to_float32(h.detach()))[1]
            lowest, highest = torch.aminmax(centred)
            largest = max_over_processes(torch.maximum(-lowest, highest))
            target = target.to(centred.dtype)
            unit = torch.maximum(largest, target.diagonal().amax().sqrt())
            inverse = torch.where(unit < torch.finfo(unit.dtype).tiny, 0.0, 1 / unit)
            points = centred.mul_(inverse)  # [N, d], no entry above 1
            share = (1 - zeta) / max(count_batch_rows(h) - 1, 1)
            mixed = share * sum_over_processes(gram_in_own_precision(points))
            mixed = mixed + zeta * target * inverse * inverse  # S, [d, d]
            trace, squares = mixed.trace(), mixed.square().sum()
            ratio = torch.where(trace == 0, 0.0, trace / squares)
            others = h.shape[1] - 1  # d - 1
            slope = mixed * ratio  # [d, d]; from here on changed in place into the derivative for the points
            slope.diagonal().sub_(1)
            slope *= 4 * share / others * ratio * inverse
            ctx.save_for_backward(points, slope)
            ctx.dtype = h.dtype
            return torch.where(trace == 0, 0.0, 1 - (trace * ratio - 1) / others)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        points, slope = ctx.saved_tensors
        with torch.autocast(points.device.type, enabled=False):
            # The loss of every process depends on every point.
            return (points @ (slope * sum_over_processes(gradient))).to(ctx.dtype), None, None
