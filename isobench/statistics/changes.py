"""Intervals for what a fitted method changes: of new rows, and of fitting it again on other rows."""

import math
from collections.abc import Sequence

import numpy as np

from isobench.statistics.paired_bootstrap import resample_metric

RESAMPLES, CHUNK = 1_000, 100  # of scored pairs, and how many are handled at a time
QUERY_RESAMPLES = 10_000  # of queries, whose means are tested too
Z = 1.959964  # the normal distribution's 97.5% quantile


def measure_spread(refitted: Sequence[float]) -> float:
    """Return half the width of the 95% interval that comes of refitting a method, from the scores of refits."""
    from scipy.special import stdtrit

    return float(stdtrit(len(refitted) - 1, 0.975) * np.std(refitted, ddof=1)) if refitted else 0.0


def compare_paired(differences: np.ndarray, spread: float = 0.0) -> tuple[float, float, float]:
    """Return the change of a share of right answers, from differences [N] of -1, 0 or 1, and its 95% interval.

    The interval is Bonett and Price's (2012): the normal one, with one row more that got better and one that got
    worse. So it has a width even if no row changes. ``spread``: half the width that comes of refitting.
    """
    count = len(differences) + 2
    better, worse = (float((differences == sign).sum() + 1) / count for sign in (1, -1))
    middle = better - worse
    margin = math.hypot(Z * math.sqrt((better + worse - middle**2) / count), spread)
    return float(differences.mean()), max(middle - margin, -1.0), min(middle + margin, 1.0)


def compare_correlations(
    first: np.ndarray, plain: np.ndarray, scores: np.ndarray, spread: float, seed: int
) -> tuple[float, float, float]:
    """Return the change of Spearman's correlation with scores [P], from ``plain`` to ``first``, and its 95% interval.

    Pairs are drawn anew with replacement, and ranked anew in each resample: percentiles of the resampled changes.
    ``first``, ``plain``: predicted scores of the pairs [P]. ``spread``, half the width of refitting's 95% interval
    as in `compare_paired`, is added as normal noise.
    """
    rng, count = np.random.default_rng(seed), len(scores)

    def change(drawn: np.ndarray) -> np.ndarray:
        ours, theirs = resample_metric("spearman", scores, np.stack([first, plain]), drawn).T
        return ours - theirs

    chunks = [rng.multinomial(count, np.full(count, 1 / count), CHUNK) for _ in range(RESAMPLES // CHUNK)]
    resampled = np.concatenate([change(drawn) for drawn in chunks]) + spread / Z * rng.normal(size=RESAMPLES)
    low, high = np.nanquantile(resampled, (0.025, 0.975)) if np.isfinite(resampled).any() else (math.nan, math.nan)
    return float(change(np.ones((1, count)))[0]), float(low), float(high)


def compare_means(
    changes: np.ndarray, refitted: Sequence[float], rng: np.random.Generator
) -> tuple[float, float, float]:
    """Return the 95% interval of a mean change, from changes [Q] of each query, and its two-sided p.

    Queries are drawn anew with replacement; the scores of refits add Student's t of their spread to each resample.
    """
    count = len(changes)
    chunks = [rng.multinomial(count, [1 / count] * count, CHUNK) for _ in range(QUERY_RESAMPLES // CHUNK)]
    means = np.concatenate([drawn @ changes / count for drawn in chunks])
    means += np.std(refitted, ddof=1) * rng.standard_t(len(refitted) - 1, QUERY_RESAMPLES)
    low, high = np.quantile(means, (0.025, 0.975))
    tail = min((means <= 0).sum(), (means >= 0).sum()) + 1
    return float(low), float(high), min(1.0, 2 * float(tail) / (QUERY_RESAMPLES + 1))
