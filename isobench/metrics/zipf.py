"""The exponent of a rank-frequency curve: f(r) proportional to r^-s (Zipf 1949)."""

import math

import numpy as np
from scipy.optimize import brentq

MAX_EXPONENT = 100.0  # no exponent above it is looked for


def zipf_exponents(counts: np.ndarray, first: int, last: int) -> tuple[float, float]:
    """The exponent s from the counts of some ranks, in two ways; NaN twice if there are fewer than two ranks.

    Least squares: the slope of log count against log rank, every rank weighing the same. Maximum likelihood: of the
    occurrences at these ranks, drawn with p(r) = r^-s / sum of all ranks' r^-s, so that frequent ranks weigh more;
    at its solution the mean log rank that is expected equals the observed one.

    Args:
        counts: positive, descending, [N]: rank r at index r - 1.
        first: the first rank that counts.
        last: the last one; ranks beyond N are left out.

    Returns:
        By least squares, by maximum likelihood.

    Raises:
        ValueError: counts that are not positive and descending, or ``first`` below 1.
    """
    if first < 1 or np.any(counts <= 0) or np.any(np.diff(counts) > 0):
        raise ValueError("counts must be positive and descending, ranks at least 1")
    taken = np.asarray(counts[first - 1 : last], np.float64)
    if len(taken) < 2:
        return math.nan, math.nan
    logs = np.log(np.arange(first, first + len(taken)))
    observed = np.average(logs, weights=taken)

    def surplus(s: float) -> float:
        weights = np.exp(-s * (logs - logs[0]))
        return float(np.average(logs, weights=weights) - observed)

    squares = float(-np.polyfit(logs, np.log(taken), 1)[0])
    if surplus(0.0) <= 0:  # all counts are equal
        return squares, 0.0
    return squares, brentq(surplus, 0.0, MAX_EXPONENT) if surplus(MAX_EXPONENT) < 0 else math.nan
