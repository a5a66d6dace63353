"""The few values that would squeeze all others on an axis."""

import math

import numpy as np
import pytest

from isobench.common.plots import find_outliers


@pytest.mark.parametrize(
    ("values", "far"),
    [
        ([*range(20, 80), 281.0, 1012.0], [1012.0, 281.0]),
        ([*range(20, 80), 90.0, 1012.0], [1012.0]),  # not 90, which is near the others
        ([*range(20, 80), math.nan, math.inf, -900.0], [-900.0]),
        ([*range(100)], []),
        ([3.0] * 9 + [4.0], []),  # all others are equal
        ([1.0, 1.1, 1.2, 99.0], []),  # too few
    ],
)
def test_outliers_are_far_from_the_median_by_the_distances_of_the_others(values, far):
    values = np.array(values, float)
    assert set(values[find_outliers(values)]) == set(far)
