"""Estimate how a score follows a dose or an isotropy, with the seeds as the independent repetitions of a study.

All doses of one seed share the initialisation, the order of the examples and the dev set, so their scores are not
independent. Each statistic is therefore computed for every seed by itself, and Student's t is applied to the seeds'
values. That is exact for normal values, however the scores of one seed depend on each other.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from isobench.statistics.seeds import ALPHA


class SeedMean(NamedTuple):
    """The mean of a statistic over seeds, with Student's 95% interval and two-sided p; NaN where there is none."""

    value: float
    low: float
    high: float
    p: float
    seeds: int


def average_over_seeds(values: np.ndarray) -> SeedMean:
    """Average a statistic over seeds, [S]; seeds without a finite value are left out."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return SeedMean(math.nan, math.nan, math.nan, math.nan, 0)
    mean, low, high, p = map(float, student_t(finite))
    return SeedMean(mean, low, high, p, len(finite))


def student_t(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compute mean, ends of the 95% interval and two-sided p of one-sample t-tests: [..., S] -> four of [...].

    With fewer than two values, or no spread, interval and p are NaN: such values say nothing about other seeds.
    """
    from scipy import special  # imported here because it is slow, and planning a sweep doesn't need it

    values = np.asarray(values, dtype=np.float64)
    count, mean = values.shape[-1], values.mean(axis=-1)
    if count < 2:
        undefined = np.full(mean.shape, math.nan)
        return mean, undefined, undefined, undefined
    error = values.std(axis=-1, ddof=1) / math.sqrt(count)
    has_spread = error > np.finfo(np.float64).eps * np.abs(values).max(axis=-1)
    error = np.where(has_spread, error, math.nan)
    margin = special.stdtrit(count - 1, 1 - ALPHA / 2) * error
    return mean, mean - margin, mean + margin, 2 * special.stdtr(count - 1, -np.abs(mean / error))


def fit_slopes(doses: Sequence[float], scores: np.ndarray) -> np.ndarray:
    """Fit each seed's scores by a straight line in the dose, by least squares; returns the slopes, [...].

    Args:
        doses: at least two different ones. [k]
        scores: of one seed at these doses. [..., k]
    """
    centred = np.asarray(doses, dtype=np.float64) - np.mean(doses)
    total = float(centred @ centred)
    if total == 0:
        raise ValueError("a slope needs at least two different doses")
    values = np.asarray(scores, dtype=np.float64)
    slopes: np.ndarray = (values - values[..., :1]) @ (centred / total)  # equal scores give 0, and no rounding error
    return slopes


def correlate_partially(x: np.ndarray, y: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """Compute Spearman's partial correlation within each seed: [..., n] and [..., n] -> [...].

    x and y are ranked. Both ranks are reduced by their least-squares fit on a constant and ``given``; the result is
    the correlation of what is left. NaN where nothing is left of x or y, or where fewer than three degrees of freedom
    remain.

    Args:
        x: isotropy of a seed's runs. [..., n]
        y: their scores. [..., n]
        given: what is held fixed, such as a column of 0 and 1 for each method; the same for all seeds. [n, k]
    """
    from scipy import linalg, stats  # imported here because it takes 0.7 s, and planning a sweep does not need it

    n = x.shape[-1]
    constant = np.ones((n, 1))
    basis = linalg.orth(constant if given is None else np.hstack([constant, given]), rcond=1e-10)
    if n - basis.shape[1] < 3:
        return np.full(x.shape[:-1], math.nan)
    ranks_x, ranks_y = stats.rankdata(x, axis=-1), stats.rankdata(y, axis=-1)
    rest_x, rest_y = ranks_x - (ranks_x @ basis) @ basis.T, ranks_y - (ranks_y @ basis) @ basis.T
    length_x, length_y = np.linalg.norm(rest_x, axis=-1), np.linalg.norm(rest_y, axis=-1)
    is_defined = np.minimum(length_x, length_y) > 1e-9 * n  # below it only rounding is left
    product = np.where(is_defined, length_x * length_y, math.nan)
    return np.clip((rest_x * rest_y).sum(-1) / product, -1, 1)


def judge_equivalence(values: np.ndarray, margin: float) -> tuple[float, float, float]:
    """Judge whether the mean of a statistic over seeds, [S], is within +-``margin``: two one-sided t-tests.

    Returns:
        p, the larger of the two tests' (Schuirmann 1987), and the ends of the 90% interval, which is within the
        margin if p < .05. All NaN with fewer than two values, or where they have no spread.
    """
    from scipy import special  # as in student_t

    mean, low, high, _ = map(float, student_t(values))
    reach, freedom = narrow_interval(low, high, len(values)), max(len(values) - 1, 1)
    error = reach / special.stdtrit(freedom, 1 - ALPHA)
    return float(special.stdtr(freedom, (abs(mean) - margin) / error)), mean - reach, mean + reach


def narrow_interval(low: float, high: float, seeds: int) -> float:
    """Compute half the 90% interval of a mean over seeds from its 95% interval; both are Student's t."""
    from scipy import special  # as in student_t

    freedom = max(seeds - 1, 1)
    ratio = special.stdtrit(freedom, 1 - ALPHA) / special.stdtrit(freedom, 1 - ALPHA / 2)
    return float((high - low) / 2 * ratio)
