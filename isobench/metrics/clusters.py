"""Clusters of vectors: the silhouette of classes, and isotropy after each cluster is centred."""

import math

import numpy as np
import torch
from torch import Tensor

from isobench.common.linalg import (
    PIECE_ROWS,
    Array,
    as_labelled_vectors,
    as_vectors,
    gram_diagonal,
    row_mean,
    to_float64,
)
from isobench.metrics.isotropy import average_cosine
from isobench.metrics.partition import partition_isotropy


def silhouette_values(h: Array, labels: Array) -> Tensor:
    """Compute the silhouettes of vectors [N, d], with squared Euclidean distances and classes [N] as clusters.

    It is (b - a) / max(a, b). a is the mean squared distance to the other vectors of its class; b is the smallest,
    over the other classes, of the mean squared distance to their vectors. A vector that is alone in its class has 0,
    and so has one with a = b = 0. A mean squared distance to a class is the squared distance to its mean plus its
    variance, so all of them take O(N d) for each class, not O(N^2 d).

    Returns:
        Values in [-1, 1], [N] float64, on the device of ``h``; NaN if all vectors have one class.
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
    values = torch.where((larger == 0) | (alone & nearest.isfinite()), 0.0, (nearest - own) / larger)
    return torch.where(nearest.isinf(), torch.nan, values)  # there is no other class


def silhouette(h: Array, labels: Array) -> float:
    """Average the silhouettes of vectors [N, d] with classes [N]: 1 for classes far apart, about 0 for mixed ones.

    Mickus et al. (2024) argue that it conflicts with isotropy: vectors in separate clusters are not isotropic. NaN if
    all vectors have one class.
    """
    return silhouette_values(h, labels).mean().item()


def local_isotropy(h: Array, clusters: int, seed: int = 0) -> dict[str, float]:
    """Cluster vectors [N, d], subtract each cluster's mean from its members, and measure the isotropy of the result.

    The clusters are the best result of scikit-learn's k-means from ten k-means++ starts; ``seed`` fixes it.

    Args:
        clusters: number of clusters, 1 to N; Cai et al. choose it by silhouette, 2 to 15 for sentence models.

    Returns:
        ``average_cosine``, ``i1`` and ``i2`` of all centred vectors together.
    """
    from sklearn.cluster import KMeans  # slow to import

    vectors = to_float64(as_vectors(h)).cpu()
    if not isinstance(clusters, int | np.integer) or not 1 <= clusters <= len(h):
        raise ValueError(f"clusters must be a whole number, 1 to {len(h)} (the number of vectors), not {clusters!r}")
    if not vectors.isfinite().all():
        return dict.fromkeys(("average_cosine", "i1", "i2"), math.nan)
    labels = torch.from_numpy(KMeans(clusters, n_init=10, random_state=seed).fit_predict(vectors.numpy())).long()
    centred = vectors.clone()
    for cluster in labels.unique():
        members = labels == cluster
        centred[members] -= row_mean(vectors[members])
    i1, i2 = partition_isotropy(centred)
    return {"average_cosine": average_cosine(centred), "i1": i1, "i2": i2}
