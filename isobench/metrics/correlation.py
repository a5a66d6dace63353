"""Correlation between dimensions, and clusters of dimensions that vary together."""

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


def _check_square(x: Array) -> Tensor:
    x = as_vectors(x)
    if x.shape[0] != x.shape[1]:
        raise ValueError(f"a square matrix [d, d] is needed, not {tuple(x.shape)}")
    return x
