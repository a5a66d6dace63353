"""Measures of single coordinates: outlier dimensions, and what one of them alone says of the classes."""

import math

import torch
from torch import Tensor

from isobench.common.linalg import Array, as_labelled_vectors, as_vectors, gram_diagonal, row_mean, to_float64

COLUMNS_AT_A_TIME = 64  # that are sorted at once, so that memory stays small


def coordinate_share(h: Array) -> float:
    """Compute the largest share of the variance of vectors [N, d] that one coordinate holds: between 1/d and 1.

    Unlike EV1 it depends on the basis: it is large where an outlier dimension dominates (Rudman et al. 2023). NaN
    without any variance.
    """
    h = as_vectors(h)
    return coordinate_share_of(gram_diagonal(h, row_mean(h)))


def coordinate_share_of(variances: Tensor) -> float:
    """Compute the largest share of one coordinate from the coordinates' variances, [d] (scaled by any factor)."""
    variances = to_float64(variances)
    total = variances.sum()
    return (variances.max() / total).item() if total > 0 else math.nan


def threshold_accuracies(h: Array, labels: Array) -> Tensor:
    """Compute for each coordinate the accuracy of the best classifier that compares it with one threshold.

    Vectors above the threshold get one class and the others another or the same one: the two that are right most
    often. With two classes it is the classifier by one dimension of Rudman et al. (2023). Sorting finds it in
    O(N log N) for each coordinate. It is chosen and scored on the same vectors, so its accuracy is never below the
    share of the most frequent class, and on new vectors it may be lower.

    Args:
        h: vectors, [N, d].
        labels: their classes, [N], integers.

    Returns:
        Accuracies in [0, 1], [d] float64, on the device of ``h``.
    """
    h, labels = as_labelled_vectors(h, labels)
    classes = labels.unique(return_inverse=True)[1]  # [N], from 0
    return torch.cat([_sort_and_score(columns, classes) for columns in h.split(COLUMNS_AT_A_TIME, dim=1)])


def _sort_and_score(columns: Tensor, classes: Tensor) -> Tensor:
    """Compute `threshold_accuracies` of a few coordinates, [N, m], by classes from 0, [N]: [m] float64."""
    values, order = columns.sort(dim=0)
    sorted_classes = classes[order]  # [N, m]
    below = torch.zeros_like(order)  # at n: how many of the first n + 1 values have their most frequent class
    above = torch.zeros_like(order)  # the same for the values after them
    for label in range(int(classes.max()) + 1):
        counts = (sorted_classes == label).cumsum(0)
        below = torch.maximum(below, counts)
        above = torch.maximum(above, counts[-1] - counts)
    # No threshold divides equal values. After the last value nothing is above: one class for all.
    ends = torch.cat([values[:-1] < values[1:], torch.ones_like(values[:1], dtype=torch.bool)])
    accuracies = to_float64(torch.where(ends, below + above, 0).amax(0)) / len(columns)
    return torch.where(values[[0, -1]].isfinite().all(0), accuracies, torch.nan)  # NaN is sorted behind infinity


def best_threshold_accuracy(h: Array, labels: Array) -> float:
    """Return the accuracy of the best coordinate; see ``threshold_accuracies``."""
    return threshold_accuracies(h, labels).max().item()


def fisher_score(h: Array, labels: Array) -> Tensor:
    """Compute how well each dimension separates the classes (Efficient Task Adaptation with Normalization, Eq. 1).

    F_j = sum_k n_k (mu_kj - mu_j)^2 / sum_k n_k sigma_kj^2, over the classes k that have examples; sigma_kj^2 is
    divided by n_k. A constant dimension scores 0, and all dimensions do if there is one class only. A dimension that
    is constant within each class but differs between classes separates them without error and scores infinity.

    Args:
        h: vectors, [N, d].
        labels: their classes, [N], integers.

    Returns:
        The scores, [d] float64, each 0 or more, on the device of ``h``.
    """
    h, labels = as_labelled_vectors(h, labels)
    mean = row_mean(h)
    between = torch.zeros_like(mean)
    within = torch.zeros_like(mean)
    for label in labels.unique():
        members = h[labels == label]
        centre = row_mean(members)
        between += len(members) * (centre - mean).square()
        within += gram_diagonal(members, centre)
    return torch.where(between == 0, 0.0, between / within)
