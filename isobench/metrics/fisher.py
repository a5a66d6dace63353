"""The Fisher score: how well each single dimension separates the classes."""

import torch
from torch import Tensor

from isobench.common.linalg import Array, as_tensor, gram_diagonal, row_mean


def fisher_score(h: Array, labels: Array) -> Tensor:
    """Compute the Fisher score of each dimension (Efficient Task Adaptation with Normalization, Eq. 1).

    F_j = sum_k n_k (mu_kj - mu_j)^2 / sum_k n_k sigma_kj^2, over the classes k that have examples; sigma_kj^2 is
    divided by n_k. A constant dimension scores 0, and all dimensions do if there is one class only. A dimension that
    is constant within each class but differs between classes separates them without error and scores infinity.

    Args:
        h: vectors, [N, d].
        labels: their classes, [N], integers.

    Returns:
        The scores, [d] float64, each 0 or more, on the device of ``h``.

    Raises:
        ValueError: if there are no vectors, or the number of labels differs from theirs, or a label is not finite.
    """
    h, labels = as_tensor(h), as_tensor(labels)
    if h.ndim != 2 or not len(h) or labels.shape != h.shape[:1]:
        raise ValueError(
            f"a Fisher score needs vectors [N, d] and labels [N], not {(*h.shape,)} and {(*labels.shape,)}"
        )
    if not labels.isfinite().all():
        raise ValueError("a Fisher score needs finite labels: leave out examples without a label")
    labels = labels.to(h.device)
    mean = row_mean(h)
    between = torch.zeros_like(mean)
    within = torch.zeros_like(mean)
    for label in labels.unique():
        members = h[labels == label]
        centre = row_mean(members)
        between += len(members) * (centre - mean).square()
        within += gram_diagonal(members, centre)
    return torch.where(between == 0, 0.0, between / within)
