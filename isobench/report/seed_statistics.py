"""Statistics of a few seeds."""

import math
import statistics
import warnings
from collections.abc import Callable, Sequence

from isobench.report.document import Comparison, ReportTable
from isobench.report.effects import hedges_g
from isobench.report.resampling import stratified_permutation_test


def _sd(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else math.nan


# What a paper's cell may print, by name; sd is the sample's.
CELL_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "sd": _sd,
    "median": statistics.median,
    "max": max,
    "population_sd": statistics.pstdev,
}


def compute_cell_statistics(values: Sequence[float], form: Sequence[str]) -> list[float]:
    """The statistics that a paper's cell prints, in its order; all NaN if a value is."""
    if not values or any(math.isnan(value) for value in values):
        return [math.nan] * len(form)
    return [float(CELL_STATISTICS[name](values)) for name in form]


def t_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p of Student's two-sample t-test.

    NaN where it says nothing: one seed, no spread at all, an undefined value.
    """
    return _t_test(ours, theirs, equal_var=True)


def welch(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p of Welch's t-test, which doesn't suppose equal variances; NaN as for ``t_test``."""
    return _t_test(ours, theirs, equal_var=False)


def _t_test(ours: Sequence[float], theirs: Sequence[float], equal_var: bool) -> float:
    from scipy import stats  # slow to import: not for those who only plan a sweep

    if not _have_several_values(ours, theirs) or len(set(ours)) == len(set(theirs)) == 1:
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # almost no spread: the p-value says it
        return float(stats.ttest_ind(ours, theirs, equal_var=equal_var).pvalue)


def _have_several_values(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """True if both have two values or more, all defined."""
    return min(len(ours), len(theirs)) > 1 and not any(math.isnan(value) for value in (*ours, *theirs))


def welch_of_summaries(mean: float, sd: float, n: int, their_mean: float, their_sd: float, their_n: int) -> float:
    """Welch's p from what a paper prints; NaN without a spread."""
    from scipy import stats

    if min(n, their_n) < 2 or not sd + their_sd > 0:
        return math.nan
    return float(stats.ttest_ind_from_stats(mean, sd, n, their_mean, their_sd, their_n, equal_var=False).pvalue)


def permutation_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p of the permutation test of the difference of means: ``stratified_permutation`` of one task.

    NaN for one seed or an undefined value.
    """
    return stratified_permutation_test([(ours, theirs)]).p if _have_several_values(ours, theirs) else math.nan


def smallest_p(n: int, m: int) -> float:
    """The least that ``permutation`` can give for n and m seeds, however far apart the scores are."""
    return min(1.0, 2 / math.comb(n + m, n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the given order (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(1.0, largest)
    return adjusted


def compare(ours: Sequence[float], base: Sequence[float]) -> Comparison:
    """Ours against the base on one column, one value a seed; what the seeds don't allow is None, ``holm`` too."""
    both = [*ours, *base]
    undefined = not ours or not base or any(math.isnan(value) for value in both)
    difference = math.nan if undefined else statistics.fmean(ours) - statistics.fmean(base)
    numbers = (welch(ours, base), permutation_test(ours, base), *hedges_g(ours, base))
    tests = [None if math.isnan(number) else number for number in numbers]
    return Comparison(difference, tests[0], tests[1], None, *tests[2:])


ComparisonKey = tuple[str, str, str, tuple[float, ...]]  # encoder, method, column, values


def collect_test_family(tables: Sequence[ReportTable]) -> dict[ComparisonKey, list[Comparison]]:
    """All comparisons with a p; one that stands in two tables (same line, title and values) is one."""
    found: dict[ComparisonKey, list[Comparison]] = {}
    for table in tables:
        for line in table.lines:
            for column, cell in line.cells.items():
                if cell.comparison and cell.comparison.welch is not None:
                    key = (line.encoder, line.method, column, tuple(cell.values))
                    found.setdefault(key, []).append(cell.comparison)
    return found


def apply_holm_correction(tables: Sequence[ReportTable]) -> None:
    """Fill ``Comparison.holm``: Welch's p corrected over the ``family`` of all comparisons in these tables."""
    same = list(collect_test_family(tables).values())
    adjusted = holm([p for p in (copies[0].welch for copies in same) if p is not None])
    for copies, p in zip(same, adjusted, strict=True):
        for comparison in copies:
            comparison.holm = p
