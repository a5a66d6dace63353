"""Check which values are outliers of an axis, and that a panel marks those it leaves out by an arrow and a value."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from isobench.common.plots import MOST, add_finding, cut_outliers, find_outliers

NORMAL = np.random.default_rng(0).normal(size=200)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0], []),
        ([1.0, 2.0, 3.0, 4.0, 100.0], [4]),
        ([-100.0, 2.0, 3.0, 4.0, 5.0], [0]),
        ([1.0, 2.0, 3.0, 100.0], []),  # too few values
        ([5.0, 5.0, 5.0, 5.0, 5.1], []),  # all others are equal
        ([0.0, 1.0, 2.0, 3.0, 8.0], []),  # the others fill more than a third of the axis
        ([1.0, 1.1, 1.2, 9.0, 9.1, 9.2], []),  # two groups
        ([1.0, np.nan, 2.0, 3.0, np.inf, 4.0, 100.0], [6]),
        ([], []),
    ],
)
def test_an_outlier_squeezes_all_others(values, expected):
    assert np.flatnonzero(find_outliers(np.array(values))).tolist() == expected


def test_one_outlier_may_hide_another():
    values = np.append(NORMAL, [1e6, 60.0, -1e3])
    assert np.flatnonzero(find_outliers(values)).tolist() == [200, 201, 202]


@pytest.mark.parametrize("count", [MOST, MOST + 1])
def test_many_values_are_no_outliers(count):
    values = np.append(NORMAL, np.full(count, 1e3))
    assert find_outliers(values).sum() == (MOST if count == MOST else 0)


def test_without_them_the_axis_is_at_most_a_third_as_long():
    rng = np.random.default_rng(1)
    for _ in range(50):
        values = rng.standard_cauchy(100)
        outliers = find_outliers(values)
        kept = values[~outliers]
        assert outliers.sum() <= MOST
        if outliers.any():
            assert np.ptp(kept) <= np.ptp(values) / 3
            assert np.abs(values[outliers] - np.median(values)).min() >= np.abs(kept - np.median(values)).max()


def draw(values, include=None):
    figure = Figure()
    axis = figure.subplots()
    x = np.arange(len(values))
    axis.vlines(x, 0, values)
    before = axis.get_ylim()
    cut_outliers(axis, x, np.array(values), include)
    return axis, before


def test_a_panel_ends_before_an_outlier_and_says_its_value():
    axis, _ = draw([*NORMAL, -15.25], include=0)
    low, high = axis.get_ylim()
    assert -5 < low < NORMAL.min() < NORMAL.max() < high < 5
    (text,) = axis.texts
    assert text.get_text() == "-15.2"
    *_, arrow = axis.lines
    assert (arrow.get_marker(), arrow.get_xdata()[0], arrow.get_ydata()[0]) == ("v", 200, low)


def test_bars_begin_at_the_edge():
    axis, _ = draw([*np.abs(NORMAL), 90.0], include=0)
    assert axis.get_ylim()[0] == 0


def test_at_each_edge_the_farthest_value_is_written():
    axis, _ = draw([*NORMAL, 100.0, 200.0, 300.0, -400.0])
    above, below = axis.lines
    assert [above.get_marker(), *above.get_xdata()] == ["^", 200, 201, 202]
    assert [below.get_marker(), *below.get_xdata()] == ["v", 203]
    assert [text.get_text() for text in axis.texts] == ["300", "-400"]


def test_a_panel_without_outliers_stays_as_it_is():
    axis, before = draw(NORMAL)
    assert (axis.get_ylim(), len(axis.texts), len(axis.lines)) == (before, 0, 0)


def test_a_finding_stands_between_panel_and_title():
    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.set_title("title")
    add_finding(axis, "two\nlines")
    figure.canvas.draw()
    top, title = axis.get_window_extent().y1, axis.title.get_window_extent()
    finding = axis.texts[0].get_window_extent()
    assert top < finding.y0 < finding.y1 <= title.y0
    assert title.y1 <= figure.bbox.y1
