"""Similarities of pairs of vectors, by the names of the settings."""

from collections.abc import Callable

import torch
from torch import Tensor

from isobench.common.linalg import cosine


def rank_correlation(left: Tensor, right: Tensor) -> Tensor:
    """Compute Spearman's correlation of two vectors' coordinates: [N, d] and [N, d] -> [N].

    It reads only the order of a vector's coordinates, so that one large coordinate can't decide it (Zhelezniak et
    al. 2019). Equal coordinates share their mean rank. A vector whose coordinates are all equal has correlation 0.
    """
    return torch.cosine_similarity(_center_ranks(left), _center_ranks(right))


# Each takes N pairs of vectors, [N, d] and [N, d], and returns their similarities, [N].
SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": cosine,  # 0 if one of two vectors is zero
    "inner": lambda left, right: (left * right).sum(1),
    "spearman": rank_correlation,
    "l1": lambda left, right: -(left - right).abs().sum(1),
    "l2": lambda left, right: -torch.linalg.vector_norm(left - right, dim=1),
}


def _center_ranks(rows: Tensor) -> Tensor:
    """Rank each row's coordinates, and subtract the mean rank: [N, d] -> [N, d] float64."""
    from scipy.stats import rankdata  # slow to import

    return torch.from_numpy(rankdata(rows.detach().cpu().numpy(), axis=1) - (rows.shape[1] + 1) / 2)
