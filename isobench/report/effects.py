"""How large a difference is, how large it must be to be seen, and what picking the best of several adds.

By theory (noncentral t, order statistics), for arms of normal scores with one variance.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

ALPHA, POWER = 0.05, 0.8
MAX_T_STATISTIC = 1000  # t up to which scipy inverts the noncentral t well, and soon


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
    """Standard deviation within arms, each variance weighted by its degrees of freedom; NaN without any."""
    arms = [arm for arm in arms if len(arm) > 1]
    freedom = sum(len(arm) - 1 for arm in arms)
    total = sum((len(arm) - 1) * statistics.variance(arm) for arm in arms)
    return math.sqrt(total / freedom) if freedom else math.nan


def hedges_g(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Hedges' g: the difference of means in pooled standard deviations, without d's bias.

    d = (mean - mean) / s, g = J d, J = Gamma(f/2) / (sqrt(f/2) Gamma((f-1)/2)), f = n + m - 2 (Hedges 1981).
    The interval is exact under normality: t = d sqrt(nm / (n+m)) is noncentral t, whose noncentralities that put t
    at its 97.5% and 2.5% quantiles are, divided by that root, d's limits (Steiger & Fouladi 1997), times J g's.
    All NaN where it says nothing: one seed, no spread within the arms, an undefined value; the limits alone where
    there is next to no spread (t beyond ``FARTHEST``).
    """
    from scipy import special  # slow to import

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
    """The least true difference, in standard deviations, that arms of n and m seeds (m: n) find with ``power``.

    By a two-sided t-test at .05; it is what Hedges' g estimates. The noncentrality at which t exceeds its critical
    value with probability ``power``; that it falls below the other one has then a probability under 1e-3. NaN for
    fewer than two seeds an arm.
    """
    from scipy import special, stats

    m = n if m is None else m
    if min(n, m) < 2:
        return math.nan
    critical = stats.t.ppf(1 - ALPHA / 2, n + m - 2)
    return float(special.nctdtrinc(n + m - 2, 1 - power, critical)) * math.sqrt((n + m) / (n * m))


def detectable_difference(sd: float, n: int, m: int | None = None, power: float = POWER) -> float:
    """The same in the score's unit: ``sd`` is the score's standard deviation over seeds."""
    return sd * detectable_effect(n, m, power)


def expected_maximum(k: int) -> float:
    """Mean of the largest of k independent standard normal values: what selecting one of k equals gains, in SDs.

    The integral of x k phi(x) Phi(x)^(k-1).
    """
    from scipy import integrate, stats

    def weighted(x: float) -> float:
        return float(x * k * stats.norm.pdf(x) * stats.norm.cdf(x) ** (k - 1))

    return float(integrate.quad(weighted, -10, 10, points=[0])[0])
