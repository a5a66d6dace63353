"""Isotropy and task metrics."""

from isobench.metrics.accumulator import IsotropyAccumulator
from isobench.metrics.isotropy import (
    average_cosine,
    cosine_regularization,
    effective_rank,
    explained_variance,
    isoscore,
    mean_ratio,
    spectrum,
)
from isobench.metrics.local import local_isotropy
from isobench.metrics.partition import partition_isotropy
from isobench.metrics.summary import isotropy_summary

__all__ = [
    "IsotropyAccumulator",
    "average_cosine",
    "cosine_regularization",
    "effective_rank",
    "explained_variance",
    "isoscore",
    "isotropy_summary",
    "local_isotropy",
    "mean_ratio",
    "partition_isotropy",
    "spectrum",
]
