"""Find the few values that would squeeze all others into a small part of an axis."""

import numpy as np

FEWEST = 5  # values that an axis must have before any of them is an outlier
MOST, LARGEST_SHARE = 5, 0.1  # limits on the number of outliers, and on their share of the values (one is allowed)
SHORTER = 1 / 3  # values are outliers if the axis without them is at most this share of its length with them


def find_outliers(values: np.ndarray) -> np.ndarray:
    """Find the values without which an axis would be at most a third as long, if they are few.

    The search leaves out the smallest number of values, farthest from the median first, that shortens the axis so
    much. Then it searches the remaining values again. Values are no outliers if all others are equal.

    Args:
        values: in the axis's unit, logarithms for a logarithmic axis; a value that is not finite is no outlier. [n]

    Returns:
        True for each outlier. [n]
    """
    finite = np.flatnonzero(np.isfinite(values))
    outliers = np.zeros(len(values), bool)
    if len(finite) < FEWEST:
        return outliers
    nearest_first = finite[np.argsort(np.abs(values[finite] - np.median(values[finite])), kind="stable")]
    ordered = values[nearest_first]
    lengths = np.maximum.accumulate(ordered) - np.minimum.accumulate(ordered)  # of an axis up to each value
    fewest_kept = len(ordered) - min(MOST, max(1, int(LARGEST_SHARE * len(ordered))))
    kept = len(ordered)
    for count in range(kept - 1, fewest_kept - 1, -1):
        if 0 < lengths[count - 1] <= SHORTER * lengths[kept - 1]:
            kept = count
    outliers[nearest_first[kept:]] = True
    return outliers
