"""Panels of the report's page: the same positions, ticks and numbers as in a figure that matplotlib draws."""

import io
import math
import re

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from isobench.report.panels import BOTTOM, LEFT, MARKER_SHAPES, RIGHT, TOP, Series, draw_panel

EPOCHS = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
VALUES = {
    "percent": [70.25, 71.5, 73.0, 72.75, 74.0],
    "shares": [0.01, 0.35, 0.5, 0.75, 0.99],
    "around zero": [-3.5, -1.25, 0.0, 2.0, 1.5],
    "tiny": [1e-5, 2e-5, 3.5e-5, 5e-5, 2.5e-5],
    "large": [123456.0, 223456.0, 193456.0, 153456.0, 143456.0],
    "powers": [1e-9, 1e-6, 3e-4, 2e-5, 0.02],
    "narrow": [10000.001, 10000.002, 10000.0015, 10000.003, 10000.0025],
    "one value": [42.0, 42.0, 42.0, 42.0, 42.0],
    "zero": [0.0, 0.0, 0.0, 0.0, 0.0],
}


def draw_with_matplotlib(y):
    """The path of the line, its coordinates, and the numbers on the axes."""
    with matplotlib.rc_context({"svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(2.4, 1.7))
        axes = figure.add_axes((0.2, 0.24, 0.76, 0.68))
        (line,) = axes.plot(EPOCHS, y)
        line.set_gid("line")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        if min(y) > 0 and max(y) / min(y) > 100:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(numticks=4))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}".replace("e-0", "e\N{MINUS SIGN}"))
            axes.yaxis.set_minor_locator(NullLocator())
        else:
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.yaxis.get_major_formatter().set_powerlimits((-2, 4))
        out = io.StringIO()
        FigureCanvasSVG(figure).print_svg(out)
    svg = out.getvalue()
    path = re.search(r'<g id="line">\s*<path d="([^"]*)"', svg)[1]
    return [float(number) for number in re.findall(r"[-\d.]+", path)], sorted(re.findall(r"<text[^>]*>([^<]+)<", svg))


@pytest.mark.parametrize("name", VALUES)
def test_a_panel_has_the_positions_and_numbers_of_matplotlibs(name):
    y = np.array(VALUES[name])
    coordinates, texts = draw_with_matplotlib(y)
    svg = draw_panel([Series(EPOCHS, y, "currentColor")], "", "", "a < b", integers=True)
    path = re.search(r'<path d="([^"]*)"', svg)[1]
    assert [float(number) for number in re.findall(r"[\d.]+", path)] == pytest.approx(coordinates, abs=0.006)
    assert sorted(re.findall(r"<text[^>]*>([^<]+)<", svg)) == texts
    assert 'aria-label="a &lt; b"' in svg


def test_a_missing_value_interrupts_a_line_and_is_no_point():
    x, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, math.nan, 3.0])
    line = draw_panel([Series(x, y, "red")], "x<", "y", "")
    (path,) = re.findall(r'<path d="([^"]*)" style="fill: none; stroke: red', line)
    assert re.findall("[A-Z]", path) == ["M", "L", "M"]
    assert "x&lt;</text>" in line
    for marker in MARKER_SHAPES:
        points = draw_panel([Series(x, y, "red", marker)], "x", "y", "")
        assert points.count(MARKER_SHAPES[marker]) == 3


def coordinates_of(path):
    return np.array(re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path), float)


@pytest.mark.parametrize("positive", [True, False])
def test_an_outlier_is_marked_at_the_edge_and_squeezes_nothing(positive):
    """Use positive values too, which with the outlier span more than two powers of ten, as for a logarithmic axis."""
    y = np.array([70.0, 71.0, 72.0, 73.0, 74.0, 1e6]) - (0 if positive else 72)
    x = np.arange(6.0)
    svg = draw_panel([Series(x, y, "red")], "x", "y", "", integers=False)
    places = coordinates_of(re.search(r'<path d="([^"]*)" style="fill: none; stroke: red', svg)[1])
    assert places[-1][1] == pytest.approx(TOP, abs=0.01)
    assert np.ptp(places[:-1, 1]) > 0.85 * (BOTTOM - TOP)
    assert ">1e+06 ▲</text>" in svg
    assert not re.search(">[^<]*e[^<]*5</text>", svg)  # no tick is as large as the outlier


def test_an_outlier_of_a_scatter_plot_is_marked_at_its_side():
    x, y = np.array([-30.0, 1.0, 2.0, 3.0, 4.0, 5.0]), np.array([5.0, 1.0, 2.0, 3.0, 4.0, 4.5])
    svg = draw_panel([Series(x, y, "red", "o")], "x", "y", "")
    assert ">◀ \N{MINUS SIGN}30</text>" in svg
    assert "▲" not in svg
    starts = np.array(re.findall(r'<path d="M([-\d.]+) ([-\d.]+)m', svg), float)
    assert starts[:, 0].min() == pytest.approx(LEFT, abs=0.01)
    assert np.ptp(starts[1:, 0]) > 0.85 * (RIGHT - LEFT)


def test_values_over_many_powers_of_ten_are_not_outliers():
    y = np.array(VALUES["powers"])
    assert not re.search("[▲▼◀▶]", draw_panel([Series(EPOCHS, y, "red")], "", "", "", integers=True))
