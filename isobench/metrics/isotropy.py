"""Isotropy of a set of vectors. Float64 inside; plain Python floats out."""

import math
from collections.abc import Sequence
from typing import Literal, overload

import torch
from torch import Tensor

Directions = Literal["eigenvectors", "symmetric", "as_printed"]
CHUNK_ROWS = 8192


@overload
def explained_variance(h: Tensor, k: int) -> float: ...
@overload
def explained_variance(h: Tensor, k: Sequence[int]) -> list[float]: ...
def explained_variance(h: Tensor, k: int | Sequence[int]) -> float | list[float]:
    """Share of the variance in the top k principal components (IsoBN, Eq. 9, on the centred matrix).

    Eq. 9 forgets the centring its own text relies on (invariance to the mean); it is done here. The squared
    singular values are the eigenvalues of the smaller Gram matrix, so no SVD of ``h`` is needed.

    Args:
        h: vectors, [N, d].
        k: how many components, or several such numbers.

    Returns:
        EV_k in [0, 1], one for each k; NaN if ``h`` does not vary at all (a single row, or equal rows).
    """
    h = float64(h)
    x = h - h.mean(0)
    gram = x.T @ x if x.shape[0] >= x.shape[1] else x @ x.T
    variances = torch.linalg.eigvalsh(gram).clamp(min=0).flip(0)  # descending
    total = variances.sum()
    rounding = x.numel() * torch.finfo(torch.float64).eps ** 2 * h.square().sum()
    ks = [k] if isinstance(k, int) else list(k)
    shares = [(variances[:i].sum() / total).item() if total > rounding else math.nan for i in ks]
    return shares[0] if isinstance(k, int) else shares


def partition_isotropy(w: Tensor, directions: Directions = "eigenvectors") -> tuple[float, float]:
    """I1 and I2 of Mu & Viswanath (2018): how constant the partition function is over directions.

    Z(v) = sum_i exp(v . w_i) for every eigenvector v of W^T W; I1 = min Z / max Z and
    I2 = std(Z) / mean(Z) (population standard deviation). 1 and 0 for a perfectly isotropic W.
    All of it from log Z, so nothing overflows.

    The sign of an eigenvector is arbitrary and changes Z. ``eigenvectors`` turns each v towards the rows'
    sum (v . sum_i w_i >= 0); ``symmetric`` uses both v and -v. ``as_printed`` is no measure of isotropy: it gives
    numbers that compare with those the isotropy-calibration paper prints, which its own definition can't give. There
    the directions are the ROWS of the eigenvector matrix (as good as random ones), and I2 lacks its 1/|V|
    (experiments/isotropy_calibration/errata.md).

    Args:
        w: vectors, [V, d].

    Raises:
        ValueError: an unknown ``directions``, or no rows.
    """
    if directions not in ("eigenvectors", "symmetric", "as_printed"):
        raise ValueError(f"directions must be 'eigenvectors', 'symmetric' or 'as_printed', not {directions!r}")
    if w.shape[0] == 0:
        raise ValueError("partition_isotropy needs at least one row")
    w = float64(w)
    vectors = torch.linalg.eigh(w.T @ w).eigenvectors  # columns, (d, d)
    if directions == "symmetric":
        vectors = torch.cat([vectors, -vectors], 1)
    else:
        vectors = vectors * torch.where(w.sum(0) @ vectors < 0, -1.0, 1.0)
    if directions == "as_printed":
        vectors = vectors.T
    log_z = torch.full((vectors.shape[1],), -math.inf, dtype=torch.float64, device=w.device)
    for rows in w.split(CHUNK_ROWS):
        log_z = torch.logaddexp(log_z, torch.logsumexp(rows @ vectors, 0))
    z = torch.exp(log_z - log_z.max())  # in (0, 1]: ratios of Z are all that is asked for
    i2 = (z.std(correction=0) / z.mean()).item()
    return z.min().item(), i2 * math.sqrt(len(z)) if directions == "as_printed" else i2


def float64(x: Tensor) -> Tensor:
    """Detached and in double precision, on the CPU where the device has none (Apple's)."""
    x = x.detach()
    return (x.cpu() if x.device.type == "mps" else x).to(torch.float64)
