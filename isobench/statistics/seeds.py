"""Statistics over a few seeds: a cell's numbers, the test of two methods, Holm's correction, effect size and power.

``ours`` and ``theirs`` are two methods on one task. A statistic for which there are too few seeds is NaN.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

ALPHA = 0.05  # significance level of every test in the reports, as in the papers
POWER = 0.8
ENOUGH_SEEDS = 5  # fewer find only differences of several standard deviations
MOST_FLIPPED = 16  # seeds: the exact test lists all 2^16 patterns of signs
ROUNDING = 1e-9  # a standard error that is a smaller share of the difference is rounding
MAX_TRIALS = 10**15  # more would not fit in a table of integers; no p of ours is so small
MAX_T_STATISTIC = 1000  # beyond this t scipy's inverse of the noncentral t distribution is slow and inaccurate


class Arm(NamedTuple):
    """Hold one method's scores on one task, and the seed of each; None for a seed that is not known."""

    values: Sequence[float]
    seeds: Sequence[int | None]


Arms = tuple[Arm, Arm]  # two methods on one task: ours, theirs


class Estimate(NamedTuple):
    """A number with its 95% interval; NaN where there is none."""

    value: float
    low: float
    high: float


NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan)


def compute_sd(values: Sequence[float]) -> float:
    """Compute the standard deviation, divided by n - 1; NaN of a single value, or if one is NaN."""
    return statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan


# The statistics that a paper's cell may print, by their names in published.yaml.
CELL_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "sd": compute_sd,
    "median": statistics.median,
    "max": max,
    "population_sd": lambda values: statistics.pstdev(values) if all(map(math.isfinite, values)) else math.nan,
}


def compute_cell_statistics(values: Sequence[float], form: Sequence[str]) -> list[float]:
    """Compute the statistics named in ``form``, in its order; all NaN if there are no values or one is NaN."""
    if not values or any(math.isnan(value) for value in values):
        return [math.nan] * len(form)
    return [float(CELL_STATISTICS[name](values)) for name in form]


class Comparison(NamedTuple):
    """Hold what a t-test says of the difference of two methods, ours less theirs."""

    value: float  # the difference, mean over tasks
    low: float = math.nan  # its 95% interval, of the same test: without zero exactly where p < .05
    high: float = math.nan
    p: float = math.nan  # two-sided; interval and p are NaN if a method has one seed, or if no score varies
    seeds: int = 0  # the shared seeds over which the test is paired; 0 if it is not paired
    error: float = math.nan  # standard error of the difference
    freedom: float = math.nan  # degrees of freedom of t
    p_exact: float = math.nan  # of the exact test that flips the signs of the differences; it decides nothing

    def find_detectable(self, tests: float = 1) -> float:
        """Compute the smallest true difference that this test finds with probability ``POWER`` at its spread.

        The test is two-sided at level ``ALPHA / tests``, the first step of Holm's correction over so many tests. The
        result is the noncentrality at which t exceeds the upper critical value; that t falls below the lower one has
        then a probability under 0.001 and is left out. NaN without a test, or if t would exceed ``MAX_T_STATISTIC``.
        """
        from scipy import special  # imported here because it takes 0.7 s, and planning a sweep does not need it

        critical = -special.stdtrit(self.freedom, ALPHA / tests / 2)
        if not critical <= MAX_T_STATISTIC:
            return math.nan
        return float(special.nctdtrinc(self.freedom, 1 - POWER, critical)) * self.error


def compare_runs(tasks: Sequence[Arms]) -> Comparison:
    """Compare two methods over the tasks on which both ran: the one test that decides everywhere in a report.

    **Paired where the design pairs.** If both methods have the same two seeds or more on every task, each seed gives
    one number, its difference averaged over the tasks, and Student's t-test for paired samples asks whether the mean
    of these numbers is zero. A seed that only one of the methods has, such as that of a failed run, is left out.
    Tasks may depend on each other: a seed counts once for all.

    **Not paired otherwise.** Welch's t-test asks whether the difference of means, averaged over the tasks, is zero.
    Every method and task has a variance of its own, tasks count as independent, and the degrees of freedom are those
    of Welch and Satterthwaite.

    docs/development/statistics.md says why these tests, and how often their intervals hold the true value.

    Args:
        tasks: for each task both methods with at least one score.
    """
    arms = [arm for pair in tasks for arm in pair]  # ours and theirs in turn
    if any(math.isnan(value) for arm in arms for value in arm.values):
        return Comparison(math.nan)
    by_seed = [dict(zip(arm.seeds, arm.values, strict=True)) for arm in arms]
    is_paired = all(len(scores) == len(arm.values) for scores, arm in zip(by_seed, arms, strict=True))
    shared = set.intersection(*map(set, by_seed)) - {None} if is_paired else set()
    if len(shared) > 1:
        pairs = list(zip(by_seed[::2], by_seed[1::2], strict=True))
        differences = [statistics.fmean(ours[seed] - theirs[seed] for ours, theirs in pairs) for seed in shared]
        error = statistics.stdev(differences) / math.sqrt(len(shared))
        test = _test_difference(statistics.fmean(differences), error, len(shared) - 1, len(shared))
        return test._replace(p_exact=flip_signs(differences))
    means = [statistics.fmean(arm.values) for arm in arms]
    value = statistics.fmean(means[::2]) - statistics.fmean(means[1::2])
    if min(len(arm.values) for arm in arms) < 2:
        return Comparison(value)
    error, freedom = find_welch_error([(statistics.variance(arm.values), len(arm.values)) for arm in arms])
    return _test_difference(value, error / len(tasks), freedom, 0)


def find_welch_error(spreads: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Return the standard error of a sum of means, some less others, and its degrees of freedom; NaN if none varies.

    ``spreads``: the variance and the number of seeds of each.
    """
    parts = [variance / seeds for variance, seeds in spreads]
    spread = sum(part**2 / (seeds - 1) for part, (_, seeds) in zip(parts, spreads, strict=True))
    return math.sqrt(sum(parts)), sum(parts) ** 2 / spread if spread else math.nan


def find_detectable_spreads(seeds: int, tests: float) -> float:
    """Compute what a paired test finds (`Comparison.find_detectable`), in deviations of the seeds' differences."""
    return Comparison(0.0, error=seeds**-0.5, freedom=seeds - 1).find_detectable(tests)


def _test_difference(value: float, error: float, freedom: float, seeds: int) -> Comparison:
    from scipy import special

    if not error > ROUNDING * (1 + abs(value)):
        return Comparison(value, seeds=seeds)
    margin = float(special.stdtrit(freedom, 1 - ALPHA / 2)) * error
    p = float(2 * special.stdtr(freedom, -abs(value) / error))
    return Comparison(value, value - margin, value + margin, p, seeds, error, freedom)


def flip_signs(differences: Sequence[float]) -> float:
    """Compute the two-sided p of the exact test that flips signs (Fisher 1935); NaN with more than 16 differences.

    If two methods are alike, each seed's difference could as well have had the other sign. p is the share of all
    patterns of signs that give a mean as far from zero as the one seen, or farther. It is 2 / 2^n at least.
    """
    if len(differences) > MOST_FLIPPED:
        return math.nan
    signs = np.array(list(itertools.product((-1, 1), repeat=len(differences))))
    sums = np.abs(signs @ np.array(differences))
    return float((sums >= sums[0] * (1 - ROUNDING)).mean())


def count_trials(ours: int, theirs: int, difference: float) -> int:
    """Return by what to multiply p if the better method was selected from more configurations than the other.

    The best of k configurations is better by chance alone. Its p times k (Bonferroni) is right whatever the other
    configurations are. Where each task has a choice of its own, their numbers are multiplied.

    Args:
        ours, theirs: configurations from which the two methods were selected by the scores that are shown.
        difference: ours less theirs.
    """
    is_favoured = ours > theirs if difference > 0 else ours < theirs
    return max(ours, theirs) if is_favoured else 1


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order of ``p_values`` (Holm 1979). NaN is no test and stays NaN."""
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=p_values.__getitem__)
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, (len(order) - rank) * p_values[index])
        adjusted[index] = min(1.0, largest)
    return adjusted


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

    n, m = len(ours), len(theirs)
    if min(n, m) < 2 or any(map(math.isnan, (*ours, *theirs))):
        return NO_ESTIMATE
    freedom, root = n + m - 2, math.sqrt(n * m / (n + m))
    spread = math.sqrt(((n - 1) * statistics.variance(ours) + (m - 1) * statistics.variance(theirs)) / freedom)
    if spread == 0:
        return NO_ESTIMATE
    d = (statistics.fmean(ours) - statistics.fmean(theirs)) / spread
    unbias = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)
    if abs(d * root) > MAX_T_STATISTIC:
        return Estimate(unbias * d, math.nan, math.nan)
    low, high = (float(special.nctdtrinc(freedom, p, d * root)) / root for p in (1 - ALPHA / 2, ALPHA / 2))
    return Estimate(unbias * d, unbias * low, unbias * high)


def expected_maximum(k: int) -> float:
    """Compute the mean of the largest of k independent standard normal values.

    That is what selecting the best of k equally good configurations gains by chance, in standard deviations: the
    integral of x k phi(x) Phi(x)^(k-1) over x. The trapezoidal sum is exact to 1e-12 for so smooth an integrand.
    """
    from scipy import special

    x, step = np.linspace(-10, 10, 4001, retstep=True)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return float(step * np.sum(x * k * density * special.ndtr(x) ** (k - 1)))
