"""Zipf's exponent of counts."""

import math

import numpy as np

MAX_EXPONENT = 100.0  # upper end of the search


def zipf_exponents(counts: np.ndarray, first: int, last: int) -> tuple[float, float]:
    """Estimate Zipf's exponent s of a rank-frequency curve from the counts at some ranks, in two ways.

    Zipf (1949): the count at rank r is proportional to r^-s.

    Least squares takes the slope of log count against log rank; all ranks weigh the same. Maximum likelihood takes
    the occurrences at these ranks as draws with p(r) = r^-s / sum over the ranks of r^-s, so that frequent ranks
    weigh more; at its solution the expected mean log rank equals the observed one.

    Args:
        counts: positive, descending, [N]; rank r is at index r - 1.
        first: first rank used, from 1.
        last: last rank used; ranks above N are left out.

    Returns:
        The estimates by least squares and by maximum likelihood; NaN twice if there are fewer than two ranks, and NaN
        for a maximum-likelihood exponent above MAX_EXPONENT.
    """
    from scipy.optimize import brentq  # slow to import

    counts = np.asarray(counts)
    if first < 1 or not np.all(counts > 0) or np.any(np.diff(counts) > 0):
        raise ValueError("counts must be positive and descending, ranks at least 1")
    used_counts = np.asarray(counts[first - 1 : last], np.float64)
    if len(used_counts) < 2:
        return math.nan, math.nan
    log_ranks = np.log(np.arange(first, first + len(used_counts)))
    observed_mean = np.average(log_ranks, weights=used_counts)

    def excess_mean_log_rank(s: float) -> float:
        weights = np.exp(-s * (log_ranks - log_ranks[0]))
        return float(np.average(log_ranks, weights=weights) - observed_mean)

    least_squares = float(-np.polyfit(log_ranks, np.log(used_counts), 1)[0])
    if excess_mean_log_rank(0.0) <= 0:  # all counts are equal
        return least_squares, 0.0
    if excess_mean_log_rank(MAX_EXPONENT) >= 0:
        return least_squares, math.nan
    return least_squares, float(brentq(excess_mean_log_rank, 0.0, MAX_EXPONENT))
