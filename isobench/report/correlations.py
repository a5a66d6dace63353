"""Correlate the isotropy of runs with their scores: points of a scatter plot, and Spearman's rank correlation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isobench.report.document import TidyRows
from isobench.report.page_data import group_rows, to_numbers
from isobench.statistics.correlation import spearman


@dataclass(frozen=True)
class Points:
    """Isotropy and score of runs, one entry a run.

    Attributes:
        methods: names. [runs]
        groups: number of each run's encoder and task. [runs]
        x: isotropy. [runs]
        y: score. [runs]
    """

    methods: np.ndarray
    groups: np.ndarray
    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.x)

    def select(self, chosen: np.ndarray) -> "Points":
        """Return the points that a mask or a list of indices chooses."""
        return Points(self.methods[chosen], self.groups[chosen], self.x[chosen], self.y[chosen])

    def centre(self) -> "Points":
        """Subtract from each point the mean over its encoder and task; leave out the only run of such a pair."""
        sizes = np.bincount(self.groups)[self.groups]
        # Values less their group's first one: where all are equal they are 0, and their mean is no rounded number.
        _, firsts, places = np.unique(self.groups, return_index=True, return_inverse=True)
        shifted = (v - v[firsts][places] for v in (self.x, self.y))
        x, y = (v - np.bincount(self.groups, v)[self.groups] / sizes for v in shifted)
        return Points(self.methods, self.groups, x, y).select(sizes > 1)


def collect_points(runs: TidyRows, measure: str) -> Points:
    """Return a point for each run that has both a measure and a score, those of one encoder and task together.

    Args:
        runs: tidy rows.
        measure: column of the isotropy.
    """
    grouped = list(enumerate(group_rows(runs, "encoder", "task").values()))
    ordered = [run for _, group in grouped for run in group]
    groups = np.array([number for number, group in grouped for _ in group], dtype=int)
    methods = np.array([str(run.get("method")) for run in ordered], dtype=object)
    x, y = (to_numbers([run.get(name) for run in ordered]) for name in (measure, "score"))
    return Points(methods, groups, x, y).select(np.isfinite(x) & np.isfinite(y))


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of n points; None where undefined: fewer than three points, or all values equal."""

    rho: float | None
    n: int


def compute_spearman(points: Points) -> Correlation:
    """Compute Spearman's rank correlation of isotropy and score."""
    rho = spearman(points.x, points.y)
    return Correlation(None if math.isnan(rho) else rho, len(points))


def compute_correlations(
    points: Sequence[Points], methods: Sequence[str], centred: bool
) -> dict[str, list[Correlation]]:
    """Correlate each measure with the score: over all runs (key "") and over each method's; one value a measure.

    Args:
        points: of each measure.
        methods: names.
        centred: subtract the means over encoder and task, of the runs that a correlation is over.
    """
    correlations = {}
    for method in ("", *methods):
        chosen = [own.select(own.methods == method) if method else own for own in points]
        correlations[method] = [compute_spearman(own.centre() if centred else own) for own in chosen]
    return correlations
