"""Check which values are outliers of an axis, and that a panel marks those it leaves out by an arrow and a value."""

import numpy as np
import pytest

from isobench.common.plots import find_outliers


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0], []), ([1.0, 2.0, 3.0, 4.0, 100.0], [4]), ([-100.0, 2.0, 3.0, 4.0, 5.0], [0]),
        ([1.0, 2.0, 3.0, 100.0], []),  # too few values
        ([5.0, 5.0, 5.0, 5.0, 5.1], []),  # all others are equal
        ([0.0, 1.0, 2.0, 3.0, 8.0], []),  # the others fill more than a third of the axis
        ([1.0, 1.1, 1.2, 9.0, 9.1, 9.2], []),  # two groups
        ([1.0, np.nan, 2.0, 3.0, np.inf, 4.0, 100.0], [6]),
        ([], []),
    ],
)  # fmt: skip
def test_an_outlier_squeezes_all_others(values, expected):
    assert np.flatnonzero(find_outliers(np.array(values))).tolist() == expected
