"""Count clusters: those that t-SNE's picture shows, and whether the vectors themselves are more than one group."""

import math

import numpy as np
from threadpoolctl import threadpool_limits
from torch import Tensor

GAUSSIAN_DRAWS = 19  # an index that is below those of all 19 samples has p <= 1/20


def count_clusters(points: np.ndarray, share: float) -> tuple[int, float]:
    """Count the clusters of points in the plane by HDBSCAN (Campello et al. 2013), as scikit-learn has it.

    A cluster is a region of higher density that holds at least ``share`` of the points. There may be only one.

    Args:
        points: [P, 2].
        share: between 0 and 1.

    Returns:
        The number of clusters, and the share of the points that are in none.
    """
    from sklearn.cluster import HDBSCAN  # slow to import

    smallest = max(2, math.ceil(share * len(points)))
    labels = HDBSCAN(min_cluster_size=smallest, allow_single_cluster=True, copy=True).fit(points).labels_
    return int(labels.max()) + 1, float((labels < 0).mean())


def compute_cluster_index(vectors: np.ndarray) -> float:
    """Compute the cluster index of Liu et al. (2008): the share of the variance that two clusters leave.

    The clusters are those of k-means with k = 2. NaN for vectors [N, d] that are all equal.
    """
    from sklearn.cluster import KMeans

    total = float(((vectors - vectors.mean(0)) ** 2).sum())
    if not total:
        return math.nan
    return float(KMeans(2, n_init=3, random_state=0).fit(vectors).inertia_) / total


def compare_with_one_gaussian(vectors: Tensor, seed: int) -> tuple[float, float]:
    """Compare the cluster index of vectors with that of samples of one Gaussian with the same covariance.

    This is the idea of SigClust (Liu et al. 2008). If the index of the vectors is below those of all the samples, one
    Gaussian is rejected with p of at most 1 / (``GAUSSIAN_DRAWS`` + 1).

    Args:
        vectors: [N, d].
        seed: of the samples.

    Returns:
        The index of the vectors, and the smallest index of the samples.
    """
    rng = np.random.default_rng(seed)
    centred = vectors.numpy().astype(np.float64)
    centred -= centred.mean(0)
    _, triangle = np.linalg.qr(centred)
    root = triangle / math.sqrt(len(centred))  # [min(N, d), d]; root^T root is the covariance
    with threadpool_limits(1):  # the order of sums depends on the number of threads
        samples = (rng.standard_normal((len(centred), len(root))) @ root for _ in range(GAUSSIAN_DRAWS))
        least = min(compute_cluster_index(sample.astype(np.float32)) for sample in samples)
        return compute_cluster_index(centred.astype(np.float32)), least
