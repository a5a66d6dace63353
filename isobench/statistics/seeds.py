"""Statistics over a few seeds: a cell's numbers, tests of two methods, Holm's correction, effect sizes and power.

``ours`` and ``theirs`` are the scores of two methods on one task, one for each seed. An arm is the scores of one
method. A statistic for which there are too few seeds is NaN.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

ALPHA = 0.05  # significance level of every test in the reports, as in the papers
POWER = 0.8
MAX_T_STATISTIC = 1000  # beyond this t scipy's inverse of the noncentral t distribution is slow and inaccurate

Arms = tuple[Sequence[float], Sequence[float]]  # the scores of the two methods on one task: ours, theirs


class Estimate(NamedTuple):
    """A number with its 95% interval; NaN where there is none."""

    value: float
    low: float
    high: float


NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan)


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
    from scipy import stats  # imported here because it takes 0.7 s, and planning a sweep does not need it

    if not have_several_values(ours, theirs) or len(set(ours)) == len(set(theirs)) == 1:
        return math.nan
    spreads = np.std(ours, ddof=1), np.std(theirs, ddof=1)
    if not any(spread**2 for spread in spreads):  # the spread is lost in rounding
        return math.nan
    test = stats.ttest_ind_from_stats(
        np.mean(ours), spreads[0], len(ours), np.mean(theirs), spreads[1], len(theirs), equal_var=equal_variances
    )
    return float(test.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order of ``p_values`` (Holm 1979). NaN is no test and stays NaN."""
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=p_values.__getitem__)
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, (len(order) - rank) * p_values[index])
        adjusted[index] = min(1.0, largest)
    return adjusted


def have_several_values(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Return True if both methods have two values or more and none is NaN."""
    return min(len(ours), len(theirs)) > 1 and not any(map(math.isnan, (*ours, *theirs)))


def pooled_sd(arms: Sequence[Sequence[float]]) -> float:
    """Compute the standard deviation within arms.

    Each arm's variance is weighted by its degrees of freedom. NaN if every arm has fewer than two values.
    """
    arms = [arm for arm in arms if len(arm) > 1]
    freedom = sum(len(arm) - 1 for arm in arms)
    total = sum((len(arm) - 1) * statistics.variance(arm) for arm in arms)
    return math.sqrt(total / freedom) if freedom else math.nan


def hedges_g(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Compute Hedges' g, the difference of means in pooled standard deviations without Cohen's d's bias.

    With n and m values, means a and b, pooled standard deviation s and f = n + m - 2 (Hedges 1981):
    d = (a - b) / s and g = J d, where J = Gamma(f/2) / (sqrt(f/2) Gamma((f-1)/2)).

    The interval is exact for normal scores (Steiger & Fouladi 1997). t = d sqrt(nm / (n+m)) has a noncentral t
    distribution. The two noncentralities for which t is the 97.5% and the 2.5% quantile, divided by that root, are
    d's limits; J times these are g's.

    Returns:
        g with its interval. All NaN if an arm has fewer than two values, no value varies or a value is NaN. The
        limits alone are NaN if t exceeds ``MAX_T_STATISTIC``, because values hardly vary.
    """
    from scipy import special  # imported here because it is slow, and planning a sweep doesn't need it

    spread = pooled_sd([ours, theirs])
    if not have_several_values(ours, theirs) or spread == 0:
        return NO_ESTIMATE
    n, m = len(ours), len(theirs)
    freedom, root = n + m - 2, math.sqrt(n * m / (n + m))
    d = (statistics.fmean(ours) - statistics.fmean(theirs)) / spread
    unbias = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)
    if abs(d * root) > MAX_T_STATISTIC:
        return Estimate(unbias * d, math.nan, math.nan)
    low, high = (float(special.nctdtrinc(freedom, p, d * root)) / root for p in (1 - ALPHA / 2, ALPHA / 2))
    return Estimate(unbias * d, unbias * low, unbias * high)


def detectable_effect(n: int, m: int | None = None, power: float = POWER) -> float:
    """Compute the smallest true difference, in standard deviations, that a t-test finds with probability ``power``.

    The test is two-sided at level ``ALPHA`` with n and m values (m: as many as n). The result is the noncentrality
    at which t exceeds its upper critical value with that probability; that t falls below the lower one has then a
    probability under 0.001 and is left out. Hedges' g estimates the same quantity. NaN for fewer than two values.
    """
    from scipy import special

    m = n if m is None else m
    if min(n, m) < 2:
        return math.nan
    critical = special.stdtrit(n + m - 2, 1 - ALPHA / 2)
    return float(special.nctdtrinc(n + m - 2, 1 - power, critical)) * math.sqrt((n + m) / (n * m))


def detectable_difference(sd: float, n: int, m: int | None = None, power: float = POWER) -> float:
    """Compute ``detectable_effect`` in the score's unit; ``sd``: the score's standard deviation over seeds."""
    return sd * detectable_effect(n, m, power)


def expected_maximum(k: int) -> float:
    """Compute the mean of the largest of k independent standard normal values.

    That is what selecting the best of k equally good configurations gains by chance, in standard deviations: the
    integral of x k phi(x) Phi(x)^(k-1) over x. The trapezoidal sum is exact to 1e-12 for so smooth an integrand.
    """
    from scipy import special

    x, step = np.linspace(-10, 10, 4001, retstep=True)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return float(step * np.sum(x * k * density * special.ndtr(x) ** (k - 1)))
