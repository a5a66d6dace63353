"""Compare two methods over several tasks by resampling runs within each task: permutation tests and bootstraps.

``tasks``: for each task the scores of the two methods, one a seed.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from itertools import combinations
from typing import NamedTuple

import numpy as np

from isobench.statistics.seeds import NO_ESTIMATE, Arms, Estimate, have_several_values

MAX_EXACT_RELABELLINGS = 200_000  # up to this many ways to exchange the methods' labels, all are counted
RANDOM_RELABELLINGS = 19_999  # where there are more, so many are drawn at random
BOOTSTRAP_RESAMPLES = 1_999
SEED = 0
TIE_TOLERANCE = 1e-9  # differences closer than this share of the largest score are equal but for rounding


class PermutationResult(NamedTuple):
    """The two-sided p, NaN where no test is possible, and how many relabellings were drawn; None if all counted."""

    p: float
    drawn: int | None


def mean_difference(tasks: Sequence[Arms]) -> float:
    """Compute the difference of means on each task, and return its mean over tasks."""
    return statistics.fmean(statistics.fmean(ours) - statistics.fmean(theirs) for ours, theirs in tasks)


def stratified_permutation_test(tasks: Sequence[Arms]) -> PermutationResult:
    """Test ``mean_difference`` by exchanging the two methods' labels among the runs of each task.

    Exact up to ``MAX_EXACT_RELABELLINGS`` relabellings. Beyond, p is estimated from ``RANDOM_RELABELLINGS`` random
    ones and the observed one (Phipson & Smyth 2010). The two-sided p is twice the smaller tail; NaN without tasks or
    with an undefined value.
    """
    if not tasks or any(math.isnan(value) for arms in tasks for arm in arms for value in arm):
        return PermutationResult(math.nan, None)
    exact = (
        math.prod(math.comb(len(ours) + len(theirs), len(ours)) for ours, theirs in tasks) <= MAX_EXACT_RELABELLINGS
    )
    if exact:
        totals = reduce(np.add.outer, [_all_differences(*arms) for arms in tasks]).ravel()
    else:
        rng = np.random.default_rng(SEED)
        totals = np.sum([_random_differences(*arms, rng) for arms in tasks], axis=0)
    observed = mean_difference(tasks) * len(tasks)
    tie = TIE_TOLERANCE * max(abs(value) for arms in tasks for arm in arms for value in arm)
    added = 0 if exact else 1
    tail = min(int((totals >= observed - tie).sum()), int((totals <= observed + tie).sum())) + added
    return PermutationResult(min(1.0, 2 * tail / (len(totals) + added)), None if exact else RANDOM_RELABELLINGS)


def permutation_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Compute the two-sided p of the permutation test of the difference of means on one task.

    NaN for fewer than two seeds of either, or an undefined value.
    """
    return stratified_permutation_test([(ours, theirs)]).p if have_several_values(ours, theirs) else math.nan


def smallest_p(n: int, m: int) -> float:
    """Compute the smallest p that ``permutation_test`` can give for n and m seeds, however far apart the scores."""
    return min(1.0, 2 / math.comb(n + m, n))


def smallest_stratified_p(tasks: Sequence[Arms]) -> float:
    """Compute the smallest p that ``stratified_permutation_test`` can give with these numbers of runs."""
    relabellings = math.prod(math.comb(len(ours) + len(theirs), len(ours)) for ours, theirs in tasks)
    return min(1.0, 2 / (relabellings if relabellings <= MAX_EXACT_RELABELLINGS else RANDOM_RELABELLINGS + 1))


def _all_differences(ours: Sequence[float], theirs: Sequence[float]) -> np.ndarray:
    """Compute the difference of means for every choice of n among the n + m runs as ours. [C(n+m, n)]"""
    n, m = len(ours), len(theirs)
    pool = np.array([*ours, *theirs], dtype=np.float64)
    sums = pool[_list_choices(n, m)].sum(axis=1)
    return sums / n - (pool.sum() - sums) / m


@lru_cache(maxsize=8)  # most comparisons of a report have as many seeds as the others
def _list_choices(n: int, m: int) -> np.ndarray:
    """List every choice of n among n + m runs: the indices of the runs labelled ours. [C(n+m, n), n]"""
    return np.array(list(combinations(range(n + m), n)))


def _random_differences(ours: Sequence[float], theirs: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Compute the difference of means for random choices of our runs among all. [RANDOM_RELABELLINGS]"""
    n = len(ours)
    pool = np.tile(np.array([*ours, *theirs], dtype=np.float64), (RANDOM_RELABELLINGS, 1))
    mixed = rng.permuted(pool, axis=1)
    return mixed[:, :n].mean(axis=1) - mixed[:, n:].mean(axis=1)


def mean_difference_interval(tasks: Sequence[Arms]) -> Estimate:
    """Compute ``mean_difference`` with its stratified bootstrap interval (95%, percentile)."""
    return _bootstrap(tasks, lambda ours, theirs: ours.mean(-1) - theirs.mean(-1))


def probability_of_improvement(tasks: Sequence[Arms]) -> Estimate:
    """Compute the probability that a random run of ours beats one of theirs, averaged over tasks, with its interval.

    On one task it is P(X > Y) + P(X = Y) / 2. The interval is the stratified bootstrap's (95%, percentile).
    Agarwal et al. (2021), "Deep reinforcement learning at the edge of the statistical precipice".
    """

    def probability(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        x, y = ours[..., :, None], theirs[..., None, :]
        return np.mean((x > y) + (x == y) / 2, axis=(-2, -1))

    return _bootstrap(tasks, probability)


def _bootstrap(tasks: Sequence[Arms], task_statistic: Callable[..., np.ndarray]) -> Estimate:
    """Compute the mean over tasks of a statistic with its percentile interval, resampling each method on each task.

    The interval is NaN if a method has one seed on some task, or if resampling changes nothing.
    """

    def statistic(arms: Sequence[np.ndarray]) -> np.ndarray:
        pairs = zip(arms[::2], arms[1::2], strict=True)
        return np.mean([task_statistic(ours, theirs) for ours, theirs in pairs], axis=0)

    samples = [np.array(arm, dtype=np.float64) for arms in tasks for arm in arms]
    if not samples or min(map(len, samples)) < 1 or any(np.isnan(sample).any() for sample in samples):
        return NO_ESTIMATE
    value = float(statistic(samples))
    if min(map(len, samples)) < 2:
        return Estimate(value, math.nan, math.nan)
    rng = np.random.default_rng(SEED)
    resampled = [
        sample[rng.integers(len(sample), size=(BOOTSTRAP_RESAMPLES, len(sample)))] for sample in samples
    ]  # [resamples, seeds] each
    low, high = map(float, np.quantile(statistic(resampled), [0.025, 0.975]))
    return Estimate(value, low, high) if low < high else Estimate(value, math.nan, math.nan)


def bootstrap_coverage(n: int) -> float:
    """Compute how often a 95% bootstrap interval with n seeds a method contains the true difference, at best.

    Resampling n values underestimates their variance by the factor (n-1)/n, so that the interval is too narrow. The
    formula is for normal scores and many tasks.
    """
    from scipy import special

    return float(2 * special.ndtr(special.ndtri(0.975) * math.sqrt((n - 1) / n)) - 1)
