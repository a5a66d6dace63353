"""Isotropy of vectors that count by their frequency, such as words (Yokoi et al. 2024)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from isobench.common.linalg import (
    PIECE_ROWS,
    Array,
    as_vectors,
    row_norms,
    to_float64,
    to_probabilities,
    weighted_covariance,
    weighted_mean,
)
from isobench.metrics.coordinates import coordinate_share_of
from isobench.metrics.isotropy import (
    effective_rank_of,
    explained_variance_of,
    gram_eigenvalues,
    isoscore_of,
    list_counts,
    mean_ratio_of,
)


def weighted_isotropy(w: Array, weights: Array, k: int | Sequence[int] = (1, 2, 3)) -> dict[str, float]:
    """Compute isotropy measures of rows [V, d] that are drawn with probabilities p, such as the words of a text.

    The measures are those of ``IsotropyAccumulator.compute``, and equal to them if all weights are equal. The mean
    row is the sum of p_i w_i, the covariance is the sum of p_i (w_i - mean)(w_i - mean)^T, and the average cosine is
    that of two draws that are different rows. A row of weight 0 counts in none of them.

    Args:
        w: rows, [V, d].
        weights: of the rows, [V], such as counts; they are divided by their sum. None is negative, one is above 0.
        k: for which EV_k, the explained variance of the top k components.

    Returns:
        The measures by name, and the two lengths whose ratio ``mean_ratio`` is: ``mean_norm``, ``average_norm``.
    """
    rows = as_vectors(w).detach()
    p = to_probabilities(weights, len(rows)).to(rows.device)
    mean = weighted_mean(rows, p)
    covariance = weighted_covariance(rows, p)
    values = gram_eigenvalues(covariance)
    norms = row_norms(rows)
    average_norm = p @ norms
    k = list_counts(k)
    found = {
        **{f"ev{n}": share for n, share in zip(k, explained_variance_of(values, k), strict=True)},
        "isoscore": isoscore_of(covariance),
        "average_cosine": _average_weighted_cosine(rows, p),
        "effective_rank": effective_rank_of(values),
        "mean_ratio": mean_ratio_of(mean, average_norm),
        "coordinate_share": coordinate_share_of(covariance.diagonal()),
        "mean_norm": torch.linalg.vector_norm(mean).item(),
        "average_norm": average_norm.item(),
    }
    return {name: value if math.isfinite(value) else math.nan for name, value in found.items()}


def _average_weighted_cosine(rows: Tensor, probabilities: Tensor) -> float:
    """Compute the mean cosine of two rows of a matrix [V, d] that are drawn independently and turn out different.

    It is (|s|^2 - q) / (P^2 - q), with s the sum of p_i u_i over the unit rows u_i, P the sum of their p_i, and q
    that of p_i^2. A zero row has no direction and is left out; with fewer than two other rows the result is NaN.
    """
    norms = row_norms(rows)
    p = torch.where(norms > 0, probabilities, 0.0)
    scales = torch.where(norms > 0, p / norms, 0.0)
    if int((p > 0).sum()) < 2:
        return math.nan
    unit_sum = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for piece, scale in zip(rows.split(PIECE_ROWS), scales.split(PIECE_ROWS), strict=True):
        unit_sum += scale @ to_float64(piece)
    squares = p.square().sum()
    return ((unit_sum.square().sum() - squares) / (p.sum().square() - squares)).item()
