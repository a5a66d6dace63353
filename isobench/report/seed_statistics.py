"""Statistics over a few seeds: a cell's numbers, tests of two methods, Holm's correction over all comparisons.

``ours`` and ``theirs``: the scores of two methods on one task, one a seed.
"""

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from isobench.report.document import Comparison, ReportTable
from isobench.report.effects import ALPHA, have_several_values, hedges_g, pooled_sd
from isobench.report.resampling import stratified_permutation_test

# The tests that marks can come from, by their names in published.yaml.
MARK_TESTS = {"welch": "Welch's t-test over seeds", "student": "Student's two-sample t-test over seeds"}


def _sample_sd(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else math.nan


# The statistics that a paper's cell may print, by their names in published.yaml; ``sd`` divides by n - 1.
CELL_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "sd": _sample_sd,
    "median": statistics.median,
    "max": max,
    "population_sd": statistics.pstdev,
}


def compute_cell_statistics(values: Sequence[float], form: Sequence[str]) -> list[float]:
    """Compute the statistics named in ``form``, in its order; all NaN if there are no values or one is NaN."""
    if not values or any(math.isnan(value) for value in values):
        return [math.nan] * len(form)
    return [float(CELL_STATISTICS[name](values)) for name in form]


def welch(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Compute the two-sided p of Welch's t-test, which allows the two methods different variances.

    NaN where no test is possible: fewer than two seeds of either, no spread at all, an undefined value.
    """
    return _t_test(ours, theirs, equal_variances=False)


def student(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Compute the two-sided p of Student's two-sample t-test, which pools the variances of the two methods.

    NaN where ``welch`` is.
    """
    return _t_test(ours, theirs, equal_variances=True)


def _t_test(ours: Sequence[float], theirs: Sequence[float], equal_variances: bool) -> float:
    from scipy import special  # scipy.stats, which has these tests, takes 0.7 s to import

    if not have_several_values(ours, theirs) or len(set(ours)) == len(set(theirs)) == 1:
        return math.nan
    n, m = len(ours), len(theirs)
    variances = (
        [pooled_sd([ours, theirs]) ** 2] * 2 if equal_variances else [np.var(ours, ddof=1), np.var(theirs, ddof=1)]
    )
    squared_error = variances[0] / n + variances[1] / m  # of the difference of means
    if squared_error == 0:
        return math.nan
    share = variances[0] / n / squared_error
    freedom = n + m - 2 if equal_variances else 1 / (share**2 / (n - 1) + (1 - share) ** 2 / (m - 1))
    t = (np.mean(ours) - np.mean(theirs)) / math.sqrt(squared_error)
    return float(2 * special.stdtr(freedom, -abs(t)))


def choose_mark(p: float | None, difference: float) -> str:
    """Return * for significantly better than plain fine-tuning, † for worse, else nothing; p is not corrected."""
    if p is None or p >= ALPHA:
        return ""
    return "*" if difference > 0 else "†"


def format_mark_legend(marks: str) -> str:
    """Explain the marks * and † that come from a test, one of ``MARK_TESTS``."""
    return f"* better, † worse than plain fine-tuning: p < {ALPHA} ({MARK_TESTS[marks]}, not corrected)"


def permutation_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Compute the two-sided p of the permutation test of the difference of means on one task.

    NaN for fewer than two seeds of either, or an undefined value.
    """
    return stratified_permutation_test([(ours, theirs)]).p if have_several_values(ours, theirs) else math.nan


def smallest_p(n: int, m: int) -> float:
    """Compute the smallest p that ``permutation_test`` can give for n and m seeds, however far apart the scores."""
    return min(1.0, 2 / math.comb(n + m, n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order of ``p_values`` (Holm 1979). NaN is no test and stays NaN."""
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=p_values.__getitem__)
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, (len(order) - rank) * p_values[index])
        adjusted[index] = min(1.0, largest)
    return adjusted


def compare(ours: Sequence[float], base: Sequence[float], marks: str = "welch") -> Comparison:
    """Compare a method's scores with plain fine-tuning's in one column; ``marks``: the test that its mark comes from.

    What the seeds don't allow is None; so is ``holm``, which ``apply_holm_correction`` fills.
    """
    undefined = not ours or not base or any(math.isnan(value) for value in (*ours, *base))
    difference = math.nan if undefined else statistics.fmean(ours) - statistics.fmean(base)
    numbers = (welch(ours, base), permutation_test(ours, base), *hedges_g(ours, base), student(ours, base))
    p, permutation, effect, low, high, pooled = (None if math.isnan(number) else number for number in numbers)
    return Comparison(difference, p, permutation, None, effect, low, high, pooled, marks)


ComparisonKey = tuple[str, str, str, tuple[float, ...]]  # group, method, column, values


def collect_test_family(tables: Sequence[ReportTable]) -> dict[ComparisonKey, list[Comparison]]:
    """Collect all comparisons that have a p: the family over which Holm's correction is made.

    A comparison shown in two tables (same group, method, column and values) is counted once: the list holds its
    copies.
    """
    family: dict[ComparisonKey, list[Comparison]] = {}
    for table in tables:
        for line in table.lines:
            for column, cell in line.cells.items():
                if cell.comparison and cell.comparison.welch is not None:
                    key = (table.name_group(line), line.method, column, tuple(cell.values))
                    family.setdefault(key, []).append(cell.comparison)
    return family


def apply_holm_correction(tables: Sequence[ReportTable]) -> None:
    """Set ``holm`` of every comparison in these tables: Welch's p, corrected over all of them."""
    family = list(collect_test_family(tables).values())
    adjusted = holm([p for p in (copies[0].welch for copies in family) if p is not None])
    for copies, p in zip(family, adjusted, strict=True):
        for comparison in copies:
            comparison.holm = p
