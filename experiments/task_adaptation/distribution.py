"""Hold what Figures 1 to 3 of Efficient Task Adaptation with Normalization (Zhou) show of one encoder and task."""

from dataclasses import dataclass

import numpy as np

from isobench.analyses.names import EncoderOnTask


@dataclass
class EmbeddingDistribution(EncoderOnTask):
    """Measures of one subject's training set in its embedding space, as the figures show them."""

    classes: list[str]
    examples: int
    plotted: np.ndarray  # (P,): numbers of the examples that Figure 1 shows
    labels: np.ndarray  # (P,): their classes
    tsne_points: np.ndarray  # (P, 2): their places by t-SNE
    clusters: int  # of these places, by HDBSCAN
    in_no_cluster: float  # share of these places that belong to no cluster
    cluster_index: float  # of h^l of the same examples: the share of their variance that two clusters leave
    gaussian_cluster_index: float  # smallest index of samples of one Gaussian with the covariance of these h^l
    mean: np.ndarray  # (d,), of h^l
    deviation: np.ndarray  # (d,), standard deviation of h; its variance is divided by N, not N - 1
    fisher: np.ndarray  # (d,), Fisher scores of h

    @property
    def importance_order(self) -> np.ndarray:
        """The dimensions of h by falling Fisher score, [d]."""
        return np.argsort(-self.fisher, kind="stable")
