"""Comparing two methods over several tasks by resampling, each task's runs among themselves.

``tasks``: for every task the scores of our runs and of theirs, one a seed.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations
from typing import NamedTuple

import numpy as np

from isobench.report.effects import Estimate

Arms = tuple[Sequence[float], Sequence[float]]  # one task: ours, theirs

MAX_EXACT_RELABELLINGS = 200_000  # ways to relabel, up to which all are counted
RANDOM_RELABELLINGS = 19_999  # drawn where there are more
BOOTSTRAP_RESAMPLES = 1_999  # of a bootstrap
SEED = 0
TIE_TOLERANCE = 1e-9  # differences closer than this share of the largest score are the same but for rounding


class PermutationResult(NamedTuple):
    """Two-sided p; ``drawn``: how many relabellings were drawn at random, None where all were counted."""

    p: float
    drawn: int | None


def mean_difference(tasks: Sequence[Arms]) -> float:
    """Mean over tasks of the difference of means."""
    return statistics.fmean(statistics.fmean(ours) - statistics.fmean(theirs) for ours, theirs in tasks)


def stratified_permutation_test(tasks: Sequence[Arms]) -> PermutationResult:
    """Permutation test of ``mean_difference``: methods' labels change places within each task.

    Exact up to ``EXACT`` relabellings, else of random ones, ours among them (Phipson & Smyth 2010). Two-sided: twice
    the smaller tail. p is NaN without tasks, or with an undefined value.
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


def _all_differences(ours: Sequence[float], theirs: Sequence[float]) -> np.ndarray:
    """The difference of means for every choice of our runs among all. [C(n+m, n)]"""
    n, m = len(ours), len(theirs)
    pool = np.array([*ours, *theirs], dtype=np.float64)
    chosen = np.array(list(combinations(range(n + m), n)))  # [C, n]
    sums = pool[chosen].sum(axis=1)
    return sums / n - (pool.sum() - sums) / m


def _random_differences(ours: Sequence[float], theirs: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """The same for random choices. [RELABELLINGS]"""
    n = len(ours)
    pool = np.tile(np.array([*ours, *theirs], dtype=np.float64), (RANDOM_RELABELLINGS, 1))
    mixed = rng.permuted(pool, axis=1)
    return mixed[:, :n].mean(axis=1) - mixed[:, n:].mean(axis=1)


def mean_difference_interval(tasks: Sequence[Arms]) -> Estimate:
    """``mean_difference`` with its stratified bootstrap interval (95%, percentile)."""
    return _bootstrap(tasks, lambda ours, theirs, axis: ours.mean(axis) - theirs.mean(axis))


def probability_of_improvement(tasks: Sequence[Arms]) -> Estimate:
    """P(X > Y) + P(X = Y) / 2 of a run of ours and one of theirs, the mean over tasks, and its bootstrap interval.

    Agarwal et al. (2021), "Deep reinforcement learning at the edge of the statistical precipice".
    """

    def probability(ours: np.ndarray, theirs: np.ndarray, axis: int) -> np.ndarray:
        x, y = ours[..., :, None], theirs[..., None, :]
        return np.mean((x > y) + (x == y) / 2, axis=(-2, -1))

    return _bootstrap(tasks, probability)


def _bootstrap(tasks: Sequence[Arms], of_a_task: Callable[..., np.ndarray]) -> Estimate:
    """The mean over tasks of a statistic with its percentile interval, every arm resampled by itself.

    No interval (NaN) with one seed in an arm, or where resampling changes nothing.
    """
    from scipy import stats

    def statistic(*arms: np.ndarray, axis: int) -> np.ndarray:
        pairs = zip(arms[::2], arms[1::2], strict=True)
        return np.mean([of_a_task(ours, theirs, axis) for ours, theirs in pairs], axis=0)

    samples = [np.array(arm, dtype=np.float64) for arms in tasks for arm in arms]
    if not samples or min(map(len, samples)) < 1 or any(np.isnan(sample).any() for sample in samples):
        return Estimate(math.nan, math.nan, math.nan)
    value = float(statistic(*samples, axis=-1))
    if min(map(len, samples)) < 2:
        return Estimate(value, math.nan, math.nan)
    rng = np.random.default_rng(SEED)
    found = stats.bootstrap(
        samples, statistic, n_resamples=BOOTSTRAP_RESAMPLES, vectorized=True, method="percentile", rng=rng
    )
    low, high = map(float, found.confidence_interval)
    return Estimate(value, low, high) if low < high else Estimate(value, math.nan, math.nan)


def bootstrap_coverage(n: int) -> float:
    """How often a 95% bootstrap interval of means of n seeds an arm holds the truth, at best (many tasks, normal).

    Resampling n values shrinks their variance by (n-1)/n, and the interval with it.
    """
    from scipy import stats

    return float(2 * stats.norm.cdf(stats.norm.ppf(0.975) * math.sqrt((n - 1) / n)) - 1)
