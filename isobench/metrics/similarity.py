"""Similarities of pairs of vectors, row by row: [N, d] and [N, d] -> [N], higher for more similar vectors."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def cosine(left: Tensor, right: Tensor) -> Tensor:
    """Compute the cosine of the angle between two vectors, 0 if one of them is zero: [N, d] and [N, d] -> [N]."""
    return torch.cosine_similarity(left, right)


def inner_product(left: Tensor, right: Tensor) -> Tensor:
    """Compute the inner product of two vectors: [N, d] and [N, d] -> [N]."""
    return (left * right).sum(1)


def rank_correlation(left: Tensor, right: Tensor) -> Tensor:
    """Compute Spearman's correlation of two vectors' coordinates: [N, d] and [N, d] -> [N].

    It reads only the order of a vector's coordinates, so that one large coordinate can't decide it (Zhelezniak et
    al. 2019). Equal coordinates share their mean rank. A vector whose coordinates are all equal has correlation 0.
    """
    return torch.cosine_similarity(_center_ranks(left), _center_ranks(right))


def negative_l1(left: Tensor, right: Tensor) -> Tensor:
    """Compute the sum of the coordinates' absolute differences, with a minus: [N, d] and [N, d] -> [N]."""
    return -(left - right).abs().sum(1)


SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": cosine,
    "inner": inner_product,
    "spearman": rank_correlation,
    "l1": negative_l1,
}


def _center_ranks(rows: Tensor) -> Tensor:
    """Rank each row's coordinates, and subtract the mean rank: [N, d] -> [N, d] float64.

    NumPy sorts, because that takes less than half of torch's time on a CPU.
    """
    values = rows.detach().cpu().numpy()
    order = values.argsort(1)
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, np.arange(values.shape[1], dtype=np.float64)[None], 1)
    ordered = np.take_along_axis(values, order, 1)
    tied = (ordered[:, 1:] == ordered[:, :-1]).any(1)
    if tied.any():
        from scipy.stats import rankdata  # slow to import

        ranks[tied] = rankdata(values[tied], axis=1) - 1
    return torch.from_numpy(ranks - (values.shape[1] - 1) / 2)
