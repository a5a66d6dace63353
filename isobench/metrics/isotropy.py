"""Isotropy of a set of vectors. Float64 inside; plain Python floats out.

Each measure has a second form, ``..._of``, for what an ``IsotropyAccumulator`` keeps instead of the vectors.
"""

import math
from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from isobench.common.linalg import PIECE_ROWS, gram, row_mean, row_norms, to_float64


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
    return explained_variance_of(squared_singular_values(h), k)


@overload
def explained_variance_of(values: Tensor, k: int) -> float: ...
@overload
def explained_variance_of(values: Tensor, k: Sequence[int]) -> list[float]: ...
def explained_variance_of(values: Tensor, k: int | Sequence[int]) -> float | list[float]:
    """The same from the variances along the principal components, descending."""
    total = values.sum()
    ks = [k] if isinstance(k, int) else list(k)
    shares = [(values[:i].sum() / total).item() if total > 0 else math.nan for i in ks]
    return shares[0] if isinstance(k, int) else shares


def squared_singular_values(h: Tensor, centered: bool = True) -> Tensor:
    """Squared singular values of the centred vectors [N, d], min(N, d) of them, descending, float64.

    Without any variance all are 0, not rounding noise. ``centered=False`` takes the vectors as they are.
    """
    _check_vectors(h)
    origin = row_mean(h) if centered else None
    if h.shape[0] >= h.shape[1]:
        product = gram(h.detach(), origin)
    else:
        x = to_float64(h) if origin is None else to_float64(h) - origin
        product = x @ x.T
    return gram_eigenvalues(product)


def gram_eigenvalues(product: Tensor) -> Tensor:
    """Eigenvalues of a Gram product [n, n], descending; 0 for those that rounding alone can make."""
    values = torch.linalg.eigvalsh(product).flip(0)
    floor = values[0] * len(values) * torch.finfo(values.dtype).eps
    return torch.where(values > floor, values, 0.0)


def spectrum(h: Tensor, centered: bool = True) -> Tensor:
    """Singular values of the centred vectors [N, d], min(N, d) of them, descending, float64."""
    return squared_singular_values(h, centered).sqrt()


def isoscore(h: Tensor, shrinkage: float = 0.0, target: Tensor | None = None) -> float:
    """IsoScore (Rudman et al. 2022), in closed form (tr(C)^2 / |C|_F^2 - 1) / (d - 1); with shrinkage IsoScore*.

    1 for a covariance that is a multiple of the identity, 0 for variance in one direction only. IsoScore* (Rudman &
    Eickhoff 2024) takes (1 - shrinkage) C + shrinkage * target, for batches too small to know their covariance.

    Args:
        h: vectors, [N, d].
        shrinkage: IsoScore*'s zeta, 0 to 1.
        target: a covariance, [d, d], of more vectors; by default tr(C) / d times the identity.

    Returns:
        A number in [0, 1]; NaN without any variance, or of one dimension.

    Raises:
        ValueError: a shrinkage outside 0..1, or a target of another size.
    """
    _check_vectors(h)
    return isoscore_of(gram(h.detach(), row_mean(h)) / len(h), shrinkage, target)


def isoscore_of(covariance: Tensor, shrinkage: float = 0.0, target: Tensor | None = None) -> float:
    """The same from the covariance, [d, d]."""
    if not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage must be between 0 and 1, not {shrinkage}")
    dim = covariance.shape[0]
    c = to_float64(covariance)
    if target is None:
        target = torch.eye(dim, dtype=torch.float64, device=c.device) * (c.trace() / dim)
    if target.shape != c.shape:
        raise ValueError(f"target must be a covariance of size {dim} x {dim}, not {tuple(target.shape)}")
    c = (1 - shrinkage) * c + shrinkage * to_float64(target)
    largest = c.diagonal().max()
    if dim < 2 or not largest > 0:
        return math.nan
    c = c / largest  # so that no square overflows or vanishes
    return ((c.trace().square() / c.square().sum() - 1) / (dim - 1)).item()


def average_cosine(w: Tensor) -> float:
    """Mean cosine over all pairs of different rows, (|s|^2 - N) / (N (N - 1)) with s the sum of the unit rows.

    A zero row has no direction and is left out; NaN for fewer than two others.
    """
    _check_vectors(w)
    total, directed = sum_unit_rows(w)
    return average_cosine_of(total, directed)


def average_cosine_of(total: Tensor, directed: int) -> float:
    """The same from the sum of the unit rows, [d], and their number."""
    if directed < 2:
        return math.nan
    return ((total.square().sum() - directed) / (directed * (directed - 1))).item()


def cosine_regularization(w: Tensor) -> float:
    """sum over i != j of cos(w_i, w_j) / V^2, what the penalty ``CosineRegularization`` has at strength 1."""
    _check_vectors(w)
    total, directed = sum_unit_rows(w)
    return ((total.square().sum() - directed) / len(w) ** 2).item()


def sum_unit_rows(w: Tensor) -> tuple[Tensor, int]:
    """Sum of the unit rows, [d], float64, and how many rows have a direction."""
    total = torch.zeros(w.shape[1], dtype=torch.float64, device=w.device)
    directed = 0
    for rows in w.detach().split(PIECE_ROWS):
        precise = to_float64(rows)
        largest = precise.abs().amax(1, keepdim=True)  # (b, 1): in its units no square overflows
        precise = precise / torch.where(largest > 0, largest, 1.0)
        norms = torch.linalg.vector_norm(precise, dim=1)
        total += precise.T @ torch.where(norms > 0, 1 / norms, 0.0)
        directed += int((norms > 0).sum())
    return total, directed


def effective_rank(h: Tensor) -> float:
    """exp of the entropy of the centred vectors' singular values as shares (Roy & Vetterli 2007).

    Between 1 and min(N, d); NaN without any variance.
    """
    return effective_rank_of(squared_singular_values(h))


def effective_rank_of(values: Tensor) -> float:
    """The same from the variances along the principal components."""
    singular = values.sqrt()
    shares = singular[singular > 0] / singular.sum()
    return torch.exp(-(shares * shares.log()).sum()).item() if len(shares) else math.nan


def mean_ratio(w: Tensor) -> float:
    """|mean of the rows| over the mean of their lengths (Too-much-in-common, Table 1); NaN if all rows are zero."""
    _check_vectors(w)
    return mean_ratio_of(row_mean(w), row_norms(w).mean())


def mean_ratio_of(mean: Tensor, length: Tensor) -> float:
    """The same from the mean vector, [d], and the mean length."""
    return (torch.linalg.vector_norm(mean) / length).item() if length > 0 else math.nan


def _check_vectors(x: Tensor) -> None:
    if x.ndim != 2 or not len(x):
        raise ValueError(f"isotropy is of vectors [N, d] with at least one row, not {tuple(x.shape)}")
