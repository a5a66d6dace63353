"""How well single dimensions tell classes apart: the Fisher score."""

import torch
from torch import Tensor

from isobench.common.linalg import gram_diagonal, row_mean


def fisher_score(h: Tensor, labels: Tensor) -> Tensor:
    """Fisher score of every dimension (Efficient Task Adaptation with Normalization, Eq. 1).

    F_j = sum_k n_k (mu_kj - mu_j)^2 / sum_k n_k sigma_kj^2, over the classes k that have examples, sigma_kj^2 divided
    by n_k. A dimension that is constant scores 0, as all do where there is one class; one that is constant within
    every class but not the same in all tells them apart without error and scores infinity.

    Args:
        h: vectors, [N, d].
        labels: their classes, [N], integers.

    Returns:
        [d] float64, each 0 or more, on the vectors' device.

    Raises:
        ValueError: no vectors, or not one label for each.
    """
    if h.ndim != 2 or not len(h) or labels.shape != h.shape[:1]:
        raise ValueError(
            f"a Fisher score is of vectors [N, d] and labels [N], not {(*h.shape,)} and {(*labels.shape,)}"
        )
    labels = labels.to(h.device)
    mean = row_mean(h)
    between = torch.zeros_like(mean)
    within = torch.zeros_like(mean)
    for label in labels.unique():
        members = h[labels == label]
        centre = row_mean(members)
        between += len(members) * (centre - mean).square()
        within += gram_diagonal(members, centre)
    return torch.where(between > 0, between / within, 0.0)
