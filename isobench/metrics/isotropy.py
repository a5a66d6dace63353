"""Measures of the isotropy of a set of vectors, computed in float64 and returned as Python floats.

Vectors are tensors or NumPy arrays. Where a measure returns one value for each dimension, it returns a tensor.

Each measure has a second form, ``..._of``, that takes what an ``IsotropyAccumulator`` keeps instead of the vectors.
"""

import math
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import overload

import torch
from torch import Tensor

from isobench.common.linalg import PIECE_ROWS, Array, as_tensor, as_vectors, gram, row_mean, row_norms, to_float64


@overload
def explained_variance(h: Array, k: int) -> float: ...
@overload
def explained_variance(h: Array, k: Sequence[int]) -> list[float]: ...
def explained_variance(h: Array, k: int | Sequence[int]) -> float | list[float]:
    """Compute EV_k, the share of the variance of vectors [N, d] in the top k principal components (IsoBN, Eq. 9).

    The vectors are centred first. The printed Eq. 9 does not centre them, although the paper's text relies on
    invariance to the mean. The squared singular values are the eigenvalues of the smaller Gram matrix, so no SVD is
    needed.

    Returns:
        EV_k in [0, 1], or a list with one for each k; NaN without any variance (a single row, or equal rows), and if
        an entry is not finite.
    """
    values = squared_singular_values(h)
    shares = explained_variance_of(values, k)
    return shares if isinstance(k, Iterable) else shares[0]


def explained_variance_of(values: Tensor, k: int | Sequence[int]) -> list[float]:
    """Compute EV_k from the variances along the principal components, descending (scaled by any factor)."""
    total = values.sum()
    return [(values[:i].sum() / total).item() if total > 0 else math.nan for i in list_counts(k)]


def list_counts(k: int | Sequence[int]) -> list[int]:
    """List numbers of components, one or several; raise ValueError unless they are whole and at least 0."""
    counts = list(k) if isinstance(k, Iterable) else [k]
    if not all(isinstance(i, Integral) and int(i) >= 0 for i in counts):
        raise ValueError(f"k must be a whole number, at least 0, or several of them, not {k!r}")
    return [int(i) for i in counts]


def squared_singular_values(h: Array, centered: bool = True) -> Tensor:
    """Compute the squared singular values of vectors [N, d]: min(N, d) of them, descending, float64.

    The vectors are centred unless ``centered`` is False. Without any variance all values are exactly 0.
    """
    h = as_vectors(h)
    origin = row_mean(h) if centered else None
    if h.shape[0] >= h.shape[1]:
        product = gram(h.detach(), origin)
    else:
        x = to_float64(h) if origin is None else to_float64(h) - origin
        product = x @ x.T
    return gram_eigenvalues(product)


def gram_eigenvalues(product: Tensor) -> Tensor:
    """Compute the eigenvalues of a Gram matrix [n, n], descending; those within rounding error of 0 become 0.

    If an entry is not finite, all are NaN.
    """
    finite = product.isfinite().all()
    values = torch.linalg.eigvalsh(torch.where(finite, product, torch.zeros_like(product))).flip(0)
    floor = values[0] * len(values) * torch.finfo(values.dtype).eps
    return torch.where(finite, torch.where(values > floor, values, 0.0), torch.nan)


def spectrum(h: Array, centered: bool = True) -> Tensor:
    """Compute the singular values of vectors [N, d], centred by default: min(N, d) of them, descending, float64."""
    return squared_singular_values(h, centered).sqrt()


def isoscore(h: Array, shrinkage: float = 0.0, target: Array | None = None) -> float:
    """Compute IsoScore (Rudman et al. 2022), in closed form (tr(C)^2 / |C|_F^2 - 1) / (d - 1), C the covariance.

    1 means that C is a multiple of the identity, 0 that all variance is in one direction. With shrinkage it is
    IsoScore* (Rudman & Eickhoff 2024), for batches too small to estimate a covariance: C is then
    (1 - shrinkage) C + shrinkage * target. With a target C is divided by N - 1, as in the authors' code. Without one
    this divisor changes nothing, and C is divided by N.

    Args:
        h: vectors, [N, d].
        shrinkage: zeta of IsoScore*, 0 to 1.
        target: covariance [d, d] of a larger sample, divided by its N - 1; by default tr(C) / d times the identity.

    Returns:
        A number in [0, 1]; NaN without any variance, or if d is 1.
    """
    h = as_vectors(h)
    covariance = gram(h.detach(), row_mean(h)) / (len(h) if target is None else max(len(h) - 1, 1))
    return isoscore_of(covariance, shrinkage, None if target is None else as_tensor(target).to(covariance.device))


def trimmed_isoscore(h: Array, trim: float = 0.02) -> float:
    """Compute IsoScore without the vectors that are farthest from the median; a variant of ours.

    A few vectors can decide IsoScore: the states of first tokens in decoders have norms a hundred times those of all
    others. Here the trim N vectors (rounded up) with the largest distance from the coordinate-wise median are left
    out. The breakdown point is ``trim``: if no more than this share of vectors is moved, however far, the value does
    not fall to 0.

    Args:
        h: vectors, [N, d].
        trim: the share that is left out, at least 0 and below 0.5.

    Returns:
        A number in [0, 1]; NaN without any variance, if d is 1, or if an entry is not finite.
    """
    if not 0 <= trim < 0.5:
        raise ValueError(f"trim must be at least 0 and below 0.5, not {trim}")
    x = to_float64(as_vectors(h))
    if not bool(x.isfinite().all()):
        return math.nan
    distances = torch.linalg.vector_norm(x - x.median(0).values, dim=1)
    left_out = min(len(x) - 1, math.ceil(round(trim * len(x), 9)))  # .07 of 100 are 7, not 8
    return isoscore(x[distances.argsort(stable=True)[: len(x) - left_out]])


def isoscore_of(covariance: Tensor, shrinkage: float = 0.0, target: Tensor | None = None) -> float:
    """Compute IsoScore from the covariance, [d, d]; see ``isoscore``."""
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
    c = c / largest  # so that no square overflows or underflows
    score = (c.trace().square() / c.square().sum() - 1) / (dim - 1)
    return score.clamp(0, 1).item()  # rounding alone leads out of this range


def average_cosine(w: Array) -> float:
    """Compute the mean cosine over all pairs of different rows of a matrix [N, d].

    It is (|s|^2 - N) / (N (N - 1)), with s the sum of the unit rows. A zero row has no direction and is left out;
    with fewer than two other rows the result is NaN.
    """
    return average_cosine_of(*sum_unit_rows(as_vectors(w)))


def average_cosine_of(unit_sum: Tensor, nonzero_count: int) -> float:
    """Compute the mean cosine from the sum of the unit rows, [d], and the number of rows that are not zero."""
    if nonzero_count < 2:
        return math.nan
    return ((unit_sum.square().sum() - nonzero_count) / (nonzero_count * (nonzero_count - 1))).item()


def cosine_regularization(w: Array) -> float:
    """Compute the cosine regularisation of a matrix [V, d]: the sum over i != j of cos(w_i, w_j), divided by V^2.

    It is the penalty of ``calibration.CosineRegularization`` at strength 1. Cosines with a zero row count as 0.
    """
    w = as_vectors(w)
    unit_sum, nonzero_count = sum_unit_rows(w)
    return ((unit_sum.square().sum() - nonzero_count) / len(w) ** 2).item()


def sum_unit_rows(w: Tensor) -> tuple[Tensor, int]:
    """Sum the rows of a matrix [N, d], each divided by its length: [d] float64; count the rows that are not zero."""
    unit_sum = torch.zeros(w.shape[1], dtype=torch.float64, device=w.device)
    nonzero_count = 0
    for rows in w.detach().split(PIECE_ROWS):
        precise = to_float64(rows)
        largest = precise.abs().amax(1, keepdim=True)  # [b, 1]; divided by it, no entry's square overflows
        precise = precise / torch.where(largest > 0, largest, 1.0)
        lengths = torch.linalg.vector_norm(precise, dim=1)
        unit_sum += precise.T @ torch.where(lengths > 0, 1 / lengths, 0.0)
        nonzero_count += int((lengths > 0).sum())
    return unit_sum, nonzero_count


def effective_rank(h: Array) -> float:
    """Compute the effective rank of vectors [N, d] (Roy & Vetterli 2007).

    It is exp(-sum p_k log p_k), with p_k the singular values of the centred vectors divided by their sum: between 1
    and min(N, d), or NaN without any variance.
    """
    return effective_rank_of(squared_singular_values(h))


def effective_rank_of(values: Tensor) -> float:
    """Compute the effective rank from the variances along the principal components (scaled by any factor)."""
    singular = values.sqrt()
    shares = singular[singular > 0] / singular.sum()
    return torch.exp(-(shares * shares.log()).sum()).item() if len(shares) else math.nan


def rankme(h: Array, epsilon: float = 1e-7) -> float:
    """Compute RankMe of vectors [N, d] (Garrido et al. 2023, Eqs. 1 and 2).

    It is exp(-sum p_k log p_k), with p_k = sigma_k / sum(sigma) + epsilon and sigma the min(N, d) singular values of
    the vectors as they are. So a large mean counts as one more direction; ``effective_rank`` centres first. Code that
    puts eigenvalues of the covariance in the place of singular values computes another number.

    Returns:
        A number from about 1 to min(N, d); NaN if all entries are 0, or one is not finite.
    """
    return rankme_of(squared_singular_values(h, centered=False), epsilon)


def rankme_of(values: Tensor, epsilon: float = 1e-7) -> float:
    """Compute RankMe from the squared singular values of vectors that are not centred, [min(N, d)].

    Of a stream they are ``gram_eigenvalues(accumulator.second_moment)[: accumulator.count]``.
    """
    singular = values.sqrt()
    total = singular.sum()
    shares = singular / total + epsilon
    return torch.exp(-(shares * shares.log()).sum()).item() if total > 0 else math.nan


def alpha_req(h: Array, first: int = 4, last: int = 100, weighted: bool = True) -> float:
    """Compute alpha-ReQ of vectors [N, d]: how fast the variances along the principal components decay.

    The i-th largest eigenvalue of the covariance is taken for proportional to i^-alpha (Agrawal et al. 2022). alpha
    is the slope of a straight line through the logarithms, by least squares. Isotropic vectors have 0. The paper does
    not say which ranks i are fitted, nor with which weights. The authors' code (fastssl) weighs each rank by 1 / i.
    It fits ranks 4 to 100 of a trained network, which is the default here, but 6 to 80 while it trains and 6 to 50 of
    single batches; their later library (reptrix) fits 6 to 100.

    Args:
        h: vectors, [N, d].
        first: the first rank that is fitted; ranks count from 1.
        last: the last one. Ranks without variance are left out.
        weighted: whether a rank weighs 1 / i; False weighs all alike.

    Returns:
        alpha; NaN with fewer than two ranks, or if an entry is not finite.
    """
    return alpha_req_of(squared_singular_values(h), first, last, weighted)


def alpha_req_of(values: Tensor, first: int = 4, last: int = 100, weighted: bool = True) -> float:
    """Compute `alpha_req` from the variances along the principal components, descending (scaled by any factor)."""
    if not (isinstance(first, Integral) and isinstance(last, Integral) and 1 <= first < last):
        raise ValueError(f"ranks count from 1, and the first must be below the last, not {first!r} and {last!r}")
    fitted = values[first - 1 : last]
    fitted = fitted[fitted > 0]
    if len(fitted) < 2:
        return math.nan
    ranks = torch.arange(first, first + len(fitted), dtype=fitted.dtype, device=fitted.device)
    x, y, weights = ranks.log(), fitted.log(), 1 / ranks if weighted else torch.ones_like(ranks)
    x = x - (weights @ x) / weights.sum()
    return (-(weights * x) @ y / (weights * x @ x)).item()  # minus the slope of log variance over log rank


def mean_ratio(w: Array) -> float:
    """Divide the length of the mean row by the rows' mean length, for a matrix [N, d].

    1 means that all rows point in one direction, 0 that they cancel out; NaN if every row is zero. Biś et al. (2021),
    Too Much in Common, print it in Table 1.
    """
    w = as_vectors(w)
    return mean_ratio_of(row_mean(w), row_norms(w).mean())


def mean_ratio_of(mean: Tensor, mean_length: Tensor) -> float:
    """Compute the mean ratio from the mean row, [d], and the rows' mean length, []."""
    return (torch.linalg.vector_norm(mean) / mean_length).item() if mean_length > 0 else math.nan
