"""Isotropy and task metrics."""

from isobench.metrics.isotropy import explained_variance, partition_isotropy

__all__ = ["explained_variance", "partition_isotropy"]
