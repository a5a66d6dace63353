"""Local isotropy: isotropy after each cluster of vectors is centred (Cai et al. 2021)."""

import torch

from isobench.common.linalg import Array, as_vectors, to_float64
from isobench.metrics.isotropy import average_cosine
from isobench.metrics.partition import partition_isotropy


def local_isotropy(h: Array, clusters: int, seed: int = 0) -> dict[str, float]:
    """Cluster vectors, subtract each cluster's mean from its members, and measure the isotropy of the result.

    The clusters are the best result of scikit-learn's k-means from ten k-means++ starts.

    Args:
        h: vectors, [N, d].
        clusters: number of clusters; Cai et al. choose it by silhouette, 2 to 15 for sentence models.
        seed: seed of k-means.

    Returns:
        ``average_cosine``, ``i1`` and ``i2`` of all centred vectors together.

    Raises:
        ValueError: if clusters is outside 1..N, there are no vectors, or an entry is not finite.
    """
    from sklearn.cluster import KMeans  # slow to import

    vectors = to_float64(as_vectors(h)).cpu()
    if not isinstance(clusters, int) or not 1 <= clusters <= len(h):
        raise ValueError(f"clusters must be a whole number, 1 to {len(h)} (the number of vectors), not {clusters!r}")
    if not vectors.isfinite().all():
        raise ValueError("k-means needs finite vectors: leave out the rows with NaN or infinity")
    labels = torch.from_numpy(KMeans(clusters, n_init=10, random_state=seed).fit_predict(vectors.numpy())).long()
    centred = vectors.clone()
    for cluster in labels.unique():
        members = labels == cluster
        centred[members] -= vectors[members].mean(0)
    i1, i2 = partition_isotropy(centred)
    return {"average_cosine": average_cosine(centred), "i1": i1, "i2": i2}
