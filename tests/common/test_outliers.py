"""Check which values are outliers of an axis, and that a panel marks those it leaves out by an arrow and a value."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from isobench.common.plots import cut_outliers, find_outliers

NORMAL = np.random.default_rng(0).normal(size=200)


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


def test_a_panel_ends_before_an_outlier_and_says_its_value():
    values = np.array([*NORMAL, -15.25])
    axis = Figure().subplots()
    axis.vlines(np.arange(len(values)), 0, values)
    cut_outliers(axis, np.arange(len(values)), values, 0)
    low, high = axis.get_ylim()
    assert -5 < low < NORMAL.min() < NORMAL.max() < high < 5
    (text,) = axis.texts
    assert text.get_text() == "-15.2"
    *_, arrow = axis.lines
    assert (arrow.get_marker(), arrow.get_xdata()[0], arrow.get_ydata()[0]) == ("v", 200, low)
