"""Statistics of a few seeds."""

import math
import statistics
import warnings
from collections.abc import Callable, Sequence


def _sd(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else math.nan


# What a paper's cell may print, by name; sd is the sample's.
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "sd": _sd,
    "median": statistics.median,
    "max": max,
    "population_sd": statistics.pstdev,
}


def summary(values: Sequence[float], form: Sequence[str]) -> list[float]:
    """The statistics that a paper's cell prints, in its order; all NaN if a value is."""
    if not values or any(math.isnan(value) for value in values):
        return [math.nan] * len(form)
    return [float(STATISTICS[name](values)) for name in form]


def t_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p of Student's two-sample t-test.

    NaN where it says nothing: one seed, no spread at all, an undefined value.
    """
    from scipy import stats  # slow to import: not for those who only plan a sweep

    values = (*ours, *theirs)
    if min(len(ours), len(theirs)) < 2 or any(math.isnan(value) for value in values):
        return math.nan
    if len(set(ours)) == len(set(theirs)) == 1:
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # almost no spread: the p-value says it
        return float(stats.ttest_ind(ours, theirs).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the given order (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(1.0, largest)
    return adjusted
