"""Correlation between dimensions, clusters of dimensions that vary together, and similarities of pairs of vectors."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from isobench.common.linalg import Array, as_vectors, to_float64


def correlation_of(covariance: Array) -> Tensor:
    """Compute Pearson correlations between dimensions from their covariance: [d, d] -> [d, d] float64.

    A constant dimension has correlation 0 with the others and 1 with itself.
    """
    c = to_float64(_check_square(covariance))
    deviation = torch.where(c.diagonal() < torch.inf, c.diagonal().sqrt(), torch.nan)
    divisor = torch.where(deviation == 0, torch.inf, deviation)
    rho = (c / torch.outer(divisor, divisor)).clamp(-1, 1)
    rho.diagonal()[~deviation.isnan()] = 1
    return rho


def clusters_of(correlation: Array, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Cluster dimensions by correlation, and order them so that correlated ones are neighbours.

    The clustering is hierarchical (average linkage) with distance 1 - |rho|: two clusters are merged while the mean
    |rho| between them is at least the threshold. Of all orders that fit the tree, the one whose neighbours are most
    correlated is returned (optimal leaf ordering, Bar-Joseph et al. 2001). Members of a cluster are adjacent in it.

    Args:
        correlation: correlations rho, [d, d], finite, with d at least 2.
        threshold: smallest mean |rho| of a merger, 0 to 1; 0 gives a single cluster.

    Returns:
        The order, [d], a permutation of 0..d-1, and the cluster of each dimension, [d], numbered from 1, the largest.
    """
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage  # slow to import
    from scipy.spatial.distance import squareform

    rho = _check_square(correlation).detach()
    if len(rho) < 2 or not rho.isfinite().all() or not 0 <= threshold <= 1:
        raise ValueError(
            "clusters need at least two dimensions, finite correlations and a threshold between 0 and 1, not "
            f"{len(rho)} dimensions and {threshold}"
        )
    distance = 1 - rho.abs().cpu().numpy()
    tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=True)
    cluster = fcluster(tree, 1 - threshold, "distance") - 1
    rank_by_size = np.empty(cluster.max() + 1, dtype=np.int64)
    rank_by_size[np.argsort(-np.bincount(cluster), kind="stable")] = np.arange(1, len(rank_by_size) + 1)
    return leaves_list(tree), rank_by_size[cluster]


def block_diagonal(clusters: np.ndarray) -> np.ndarray:
    """Build the |rho| that IsoBN assumes, [d, d], from cluster numbers [d]: 1 within a cluster, 0 between."""
    clusters = np.asarray(clusters)
    if clusters.ndim != 1:
        raise ValueError(f"cluster numbers must be [d], not {clusters.shape}")
    same: np.ndarray = clusters[:, None] == clusters
    return same.astype(np.float64)


def _check_square(x: Array) -> Tensor:
    x = as_vectors(x)
    if x.shape[0] != x.shape[1]:
        raise ValueError(f"a square matrix [d, d] is needed, not {tuple(x.shape)}")
    return x


def rank_correlation(left: Tensor, right: Tensor) -> Tensor:
    """Compute Spearman's correlation of two vectors' coordinates: [N, d] and [N, d] -> [N].

    It reads only the order of a vector's coordinates, so that one large coordinate can't decide it (Zhelezniak et
    al. 2019). Equal coordinates share their mean rank. A vector whose coordinates are all equal has correlation 0.
    """
    return torch.cosine_similarity(_center_ranks(left), _center_ranks(right))


# Each takes N pairs of vectors, [N, d] and [N, d], and returns their similarities, [N].
SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": torch.cosine_similarity,  # 0 if one of two vectors is zero
    "inner": lambda left, right: (left * right).sum(1),
    "spearman": rank_correlation,
    "l1": lambda left, right: -(left - right).abs().sum(1),
    "l2": lambda left, right: -torch.linalg.vector_norm(left - right, dim=1),
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
