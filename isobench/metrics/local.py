"""Local isotropy: of clusters, each around its own centre (Cai et al. 2021)."""

import torch
from torch import Tensor

from isobench.common.linalg import to_float64
from isobench.metrics.isotropy import average_cosine
from isobench.metrics.partition import partition_isotropy


def local_isotropy(h: Tensor, clusters: int, seed: int = 0) -> dict[str, float]:
    """Isotropy of vectors [N, d] once each cluster's centre is taken away.

    Clusters by k-means (scikit-learn's, k-means++ start, ten of them).

    Args:
        h: vectors, [N, d].
        clusters: how many; Cai et al. choose by silhouette, between 2 and 15 for sentence models.
        seed: of the start.

    Returns:
        ``average_cosine``, ``i1`` and ``i2`` of the centred clusters' vectors taken together.

    Raises:
        ValueError: fewer vectors than clusters, or no cluster.
    """
    from sklearn.cluster import KMeans  # slow to import

    if not 1 <= clusters <= len(h):
        raise ValueError(f"clusters must be between 1 and the number of vectors, {len(h)}, not {clusters}")
    vectors = to_float64(h).cpu()
    labels = torch.from_numpy(KMeans(clusters, n_init=10, random_state=seed).fit_predict(vectors.numpy())).long()
    centred = vectors.clone()
    for cluster in labels.unique():
        members = labels == cluster
        centred[members] -= vectors[members].mean(0)
    i1, i2 = partition_isotropy(centred)
    return {"average_cosine": average_cosine(centred), "i1": i1, "i2": i2}
