"""Measures of isotropy, tensors or NumPy arrays in and numbers out, for any Python program.

They raise ValueError or TypeError if there are no vectors, or an argument is out of range, and give NaN for vectors
that are not finite (docs/reference/metrics.md has the rule). Metrics of predictions are in ``task``, and
need further packages.
"""

from isobench.metrics.accumulator import IsotropyAccumulator, class_summary, isotropy_summary
from isobench.metrics.clusters import local_isotropy, silhouette, silhouette_values
from isobench.metrics.coordinates import best_threshold_accuracy, coordinate_share, fisher_score, threshold_accuracies
from isobench.metrics.correlation import clusters_of, correlation_of
from isobench.metrics.hypersphere import alignment, uniformity
from isobench.metrics.isotropy import (
    alpha_req,
    average_cosine,
    cosine_regularization,
    effective_rank,
    explained_variance,
    isoscore,
    mean_ratio,
    rankme,
    spectrum,
    trimmed_isoscore,
)
from isobench.metrics.partition import partition_isotropy
from isobench.metrics.tokens import mask_tokens
from isobench.metrics.weighted import weighted_isotropy

__all__ = [
    "IsotropyAccumulator",
    "alignment",
    "alpha_req",
    "average_cosine",
    "best_threshold_accuracy",
    "class_summary",
    "clusters_of",
    "coordinate_share",
    "correlation_of",
    "cosine_regularization",
    "effective_rank",
    "explained_variance",
    "fisher_score",
    "isoscore",
    "isotropy_summary",
    "local_isotropy",
    "mask_tokens",
    "mean_ratio",
    "partition_isotropy",
    "rankme",
    "silhouette",
    "silhouette_values",
    "spectrum",
    "threshold_accuracies",
    "trimmed_isoscore",
    "uniformity",
    "weighted_isotropy",
]
