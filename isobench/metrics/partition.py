"""I1 and I2: isotropy by the partition function Z(v) (Arora et al. 2016; Mu & Viswanath 2018)."""

import math
from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor

from isobench.common.linalg import GRAM_ROWS_ON_CPU, PIECE_ROWS, Array, as_vectors, eigh, gram, row_mean, to_float64

DirectionKind = Literal["eigenvectors", "symmetric", "as_printed"]
DIRECTION_KINDS: tuple[DirectionKind, ...] = ("eigenvectors", "symmetric", "as_printed")


def partition_isotropy(w: Array, directions: DirectionKind = "eigenvectors") -> tuple[float, float]:
    """Compute I1 and I2, which say how constant the partition function is over directions (Mu & Viswanath 2018).

    Z(v) = sum_i exp(v . w_i), for the eigenvectors v of W^T W. I1 = min Z / max Z, and I2 = std(Z) / mean(Z) with the
    population standard deviation. A perfectly isotropic W has I1 = 1 and I2 = 0. Computed from log Z, which does not
    overflow.

    Args:
        w: vectors w_i as rows, [V, d].
        directions: which v are used; the sign of an eigenvector is arbitrary, but changes Z. ``eigenvectors``: each v
            with the sign for which v . sum_i w_i >= 0 (if that is 0, as for centred rows, the sign for which v's
            largest entry is positive). ``symmetric``: both v and -v. ``as_printed``: no measure of isotropy, but
            comparable with the numbers printed in On Isotropy Calibration of Transformers, which its own definition
            can't give: the ROWS of the eigenvector matrix serve as directions, and I2 lacks its factor 1 / |V|.
            That the paper did this is inferred (experiments/isotropy_calibration/errata.md, 1 and 19).

    Returns:
        I1 in [0, 1] and I2 >= 0; NaN if every row is zero.
    """
    vectors = as_vectors(w).detach()
    total = row_mean(vectors) * len(vectors)
    return partition_isotropy_of(lambda: vectors.split(PIECE_ROWS), gram(vectors), total, directions)


def partition_isotropy_of(
    rows: Callable[[], Iterable[Tensor]],
    second_moment: Tensor,
    total: Tensor,
    directions: DirectionKind = "eigenvectors",
) -> tuple[float, float]:
    """Compute I1 and I2 of rows that are read in batches; see ``partition_isotropy``.

    Args:
        rows: called once, returns the rows of W in batches [b, d].
        second_moment: W^T W, [d, d].
        total: sum of the rows, [d].
    """
    if directions not in DIRECTION_KINDS:
        known = ", ".join(map(repr, DIRECTION_KINDS))
        raise ValueError(f"directions must be one of {known}, not {directions!r}")
    vectors = orient_eigenvectors(eigh(second_moment)[1], second_moment, total)  # [d, d]
    vectors = torch.where(second_moment.trace() > 0, vectors, torch.nan)  # zero rows have no directions
    if directions == "as_printed":
        vectors = vectors.T
    log_z = _log_partition(rows(), vectors, opposite=directions == "symmetric")
    z = torch.exp(log_z - log_z.max())  # divided by max Z, which changes neither I1 nor I2
    i2 = (z.std(correction=0) / z.mean()).item()
    return z.min().item(), i2 * math.sqrt(len(z)) if directions == "as_printed" else i2


def orient_eigenvectors(vectors: Tensor, second_moment: Tensor, total: Tensor) -> Tensor:
    """Choose the sign of each eigenvector so that its dot product with the sum of the rows is positive.

    The eigenvectors are columns, [d, d]; ``second_moment`` is W^T W, [d, d], and ``total`` the sum of the rows, [d].
    Where that product is 0 up to rounding, the entry with the largest magnitude becomes positive.
    """
    dot_products = total @ vectors
    largest_entries = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))[0]
    orthogonal = dot_products.abs() <= 1e-9 * (second_moment.trace().sqrt() + torch.linalg.vector_norm(total))
    return vectors * torch.where(torch.where(orthogonal, largest_entries, dot_products) < 0, -1.0, 1.0)


def _log_partition(rows: Iterable[Tensor], vectors: Tensor, opposite: bool = False) -> Tensor:
    """Compute log Z(v) for each column v of ``vectors``, [d, m] float64, from the rows of W in batches [b, d].

    The result is [m] float64; with ``opposite`` it is [2 m], first for v, then for -v.
    """
    log_z = torch.full(((1 + opposite) * vectors.shape[1],), -math.inf, dtype=torch.float64, device=vectors.device)
    for batch in rows:
        for piece in batch.split(GRAM_ROWS_ON_CPU if batch.device.type == "cpu" else PIECE_ROWS):
            product = to_float64(piece) @ vectors
            product = torch.cat([product, -product], 1) if opposite else product
            log_z = torch.logaddexp(log_z, torch.logsumexp(product, 0))
    return log_z
