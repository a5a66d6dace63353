"""I1 and I2: how constant the partition function is over directions (Arora et al. 2016; Mu & Viswanath 2018)."""

import math
from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor

from isobench.common.linalg import GRAM_ROWS_ON_CPU, PIECE_ROWS, gram, row_mean, to_float64

DirectionKind = Literal["eigenvectors", "symmetric", "as_printed"]
DIRECTION_KINDS: tuple[DirectionKind, ...] = ("eigenvectors", "symmetric", "as_printed")


def partition_isotropy(w: Tensor, directions: DirectionKind = "eigenvectors") -> tuple[float, float]:
    """I1 and I2 of Mu & Viswanath (2018): how constant the partition function is over directions.

    Z(v) = sum_i exp(v . w_i) for every eigenvector v of W^T W; I1 = min Z / max Z and
    I2 = std(Z) / mean(Z) (population standard deviation). 1 and 0 for a perfectly isotropic W.
    All of it from log Z, so nothing overflows.

    The sign of an eigenvector is arbitrary and changes Z. ``eigenvectors`` turns each v towards the rows'
    sum (v . sum_i w_i >= 0; where that is 0, as of centred rows, v's largest entry is positive); ``symmetric``
    uses both v and -v. ``as_printed`` is no measure of isotropy: it gives numbers that compare with those the
    isotropy-calibration paper prints, which its own definition can't give. There the directions are the ROWS of
    the eigenvector matrix (as good as random ones), and I2 lacks its 1/|V|
    (experiments/isotropy_calibration/errata.md).

    Args:
        w: vectors, [V, d].

    Raises:
        ValueError: an unknown ``directions``, or no rows.
    """
    if len(w) == 0:
        raise ValueError("partition_isotropy needs at least one row")
    return partition_isotropy_of(
        lambda: w.detach().split(PIECE_ROWS), gram(w.detach()), row_mean(w) * len(w), directions
    )


def partition_isotropy_of(
    rows: Callable[[], Iterable[Tensor]], second: Tensor, total: Tensor, directions: DirectionKind = "eigenvectors"
) -> tuple[float, float]:
    """The same for rows that are streamed: batches [b, d] of W, with W^T W [d, d] and the sum of its rows [d]."""
    if directions not in DIRECTION_KINDS:
        known = ", ".join(map(repr, DIRECTION_KINDS))
        raise ValueError(f"directions must be one of {known}, not {directions!r}")
    vectors = orient_eigenvectors(torch.linalg.eigh(second).eigenvectors, second, total)  # columns, (d, d)
    if directions == "as_printed":
        vectors = vectors.T
    log_z = log_partition(rows(), vectors, opposite=directions == "symmetric")
    z = torch.exp(log_z - log_z.max())  # in (0, 1]: ratios of Z are all that is asked for
    i2 = (z.std(correction=0) / z.mean()).item()
    return z.min().item(), i2 * math.sqrt(len(z)) if directions == "as_printed" else i2


def orient_eigenvectors(vectors: Tensor, second: Tensor, total: Tensor) -> Tensor:
    """Columns turned towards the rows' sum; where that has no part along one, by its largest entry, made positive."""
    along = total @ vectors
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))[0]
    nothing = along.abs() <= 1e-9 * (second.trace().sqrt() + torch.linalg.vector_norm(total))
    return vectors * torch.where(torch.where(nothing, largest, along) < 0, -1.0, 1.0)


def log_partition(rows: Iterable[Tensor], vectors: Tensor, opposite: bool = False) -> Tensor:
    """log Z of every column of ``vectors`` [d, m], float64, from batches [b, d]; ``opposite``: of -v too, [2 m]."""
    log_z = torch.full(((1 + opposite) * vectors.shape[1],), -math.inf, dtype=torch.float64, device=vectors.device)
    for batch in rows:
        for piece in batch.split(GRAM_ROWS_ON_CPU if batch.device.type == "cpu" else PIECE_ROWS):
            product = to_float64(piece) @ vectors
            product = torch.cat([product, -product], 1) if opposite else product
            log_z = torch.logaddexp(log_z, torch.logsumexp(product, 0))
    return log_z
