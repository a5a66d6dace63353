"""The silhouette of classes: how much nearer vectors are to their own class than to the next (Rousseeuw 1987)."""

import math

import torch
from torch import Tensor

from isobench.common.linalg import PIECE_ROWS, Array, as_labelled_vectors, gram_diagonal, row_mean, to_float64


def silhouette_values(h: Array, labels: Array) -> Tensor:
    """Compute the silhouette of each vector, with squared Euclidean distances and the classes as clusters.

    It is (b - a) / max(a, b). a is the mean squared distance to the other vectors of its class; b is the smallest,
    over the other classes, of the mean squared distance to their vectors. A vector that is alone in its class has 0,
    and so has one with a = b = 0. A mean squared distance to a class is the squared distance to its mean plus its
    variance, so all of them take O(N d) for each class, not O(N^2 d).

    Args:
        h: vectors, [N, d].
        labels: their classes, [N], integers.

    Returns:
        Values in [-1, 1], [N] float64, on the device of ``h``; NaN if all vectors have one class.

    Raises:
        ValueError: if there are no vectors, the number of labels differs from theirs, or a label is not finite.
    """
    h, labels = as_labelled_vectors(h, labels)
    own = torch.zeros_like(labels, dtype=torch.float64)
    nearest = torch.full_like(own, math.inf)
    alone = torch.zeros_like(labels, dtype=torch.bool)
    for label in labels.unique():
        members = labels == label
        count = int(members.sum())
        centre = row_mean(h[members])
        variance = gram_diagonal(h[members], centre).sum() / count
        from_centre = [(to_float64(rows) - centre).square().sum(1) for rows in h.split(PIECE_ROWS)]
        distances = torch.cat(from_centre) + variance  # mean squared distance to the class, [N]
        own = torch.where(members, distances * (count / max(1, count - 1)), own)  # without the vector itself
        nearest = torch.where(members, nearest, torch.minimum(nearest, distances))
        alone |= members & (count == 1)
    larger = torch.maximum(own, nearest)
    values = torch.where((larger > 0) & ~alone, (nearest - own) / larger, 0.0)
    return torch.where(nearest.isinf(), torch.nan, values)


def silhouette(h: Array, labels: Array) -> float:
    """Average the silhouettes of vectors [N, d] with classes [N]: 1 for classes far apart, about 0 for mixed ones.

    Mickus et al. (2024) argue that it conflicts with isotropy: vectors in separate clusters are not isotropic. NaN if
    all vectors have one class. Definition and errors as in ``silhouette_values``.
    """
    return silhouette_values(h, labels).mean().item()
