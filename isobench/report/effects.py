"""Effect sizes: how large a difference is, how large it must be to be found, what picking the best of several adds.

All by theory (noncentral t, order statistics), for normal scores with one variance.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ALPHA = 0.05  # significance level of every test in the reports, as in the papers
POWER = 0.8
MAX_T_STATISTIC = 1000  # beyond this t scipy's inverse of the noncentral t distribution is slow and inaccurate


class Estimate(NamedTuple):
    """A number with its 95% interval; NaN where there is none."""

    value: float
    low: float
    high: float


NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan)


def have_several_values(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Return True if both methods have two values or more and none is NaN."""
    return min(len(ours), len(theirs)) > 1 and not any(map(math.isnan, (*ours, *theirs)))


def pooled_sd(arms: Sequence[Sequence[float]]) -> float:
    """Compute the standard deviation within arms (one arm: the scores of one method).

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
