"""Correlation between dimensions, and the groups of dimensions that vary together."""

import numpy as np
import torch
from torch import Tensor

from isobench.common.linalg import to_float64


def correlation_of(covariance: Tensor) -> Tensor:
    """Pearson correlation between dimensions, from their covariance: [d, d] -> [d, d] float64.

    A constant dimension correlates 0 with the others and 1 with itself.
    """
    c = to_float64(covariance)
    deviation = c.diagonal().sqrt()
    divisor = torch.where(deviation > 0, deviation, torch.inf)
    rho = (c / torch.outer(divisor, divisor)).clamp(-1, 1)
    return rho.fill_diagonal_(1)


def clusters_of(correlation: Tensor, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Dimensions in an order that puts correlated ones side by side, and the groups that they form.

    Hierarchical clustering (average linkage) at distance 1 - |rho|: two groups are joined while the mean |rho|
    between them is at least the threshold. Of the tree's orders the one with the most correlated neighbours
    (Bar-Joseph et al. 2001). Members of a group stand next to each other.

    Args:
        correlation: [d, d], d at least 2.
        threshold: 0 to 1; 0 joins everything.

    Returns:
        The order, [d], a permutation of 0..d-1; the group of every dimension, [d], 1 the largest.

    Raises:
        ValueError: a single dimension.
    """
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage  # slow to import
    from scipy.spatial.distance import squareform

    distance = 1 - correlation.abs().cpu().numpy()
    tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=True)
    group = fcluster(tree, 1 - threshold, "distance") - 1
    number = np.empty(group.max() + 1, dtype=np.int64)
    number[np.argsort(-np.bincount(group), kind="stable")] = np.arange(1, len(number) + 1)
    return leaves_list(tree), number[group]


def block_diagonal(groups: np.ndarray) -> np.ndarray:
    """IsoBN's assumption: |rho| is 1 within a group and 0 between groups; [d] -> [d, d]."""
    return (groups[:, None] == groups).astype(np.float64)
