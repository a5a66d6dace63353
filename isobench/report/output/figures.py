"""Draw the page's figures with matplotlib, as SVG in the page's own colours: readable light, dark and printed.

A panel's only text is axis labels and numbers. Names of methods and tasks are in the HTML around it, which a narrow
screen can stack.
"""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from isobench.common.plots import LINE_STYLES, PALETTE, cut_outliers, use_figure_style
from isobench.report.tables import BASE_METHOD, read_numbers
from isobench.report.wording import format_signed

SIZE, BOX = (2.4, 1.7), (0.2, 0.24, 0.74, 0.68)  # of a panel in inches, and of its axes as shares of it
COLOURS = 7  # of the page: its CSS variables --m0, --m1, ...; plain fine-tuning has the colour of the text
MARKERS = "os^DvPX"
# At most: pairs of encoder and task with curves, those unfolded, runs of a method, points, configurations.
LIMITS = {"groups": 6, "tasks": 8, "open": 2, "runs": 10, "points": 600, "configurations": 200}
# Isotropy columns of ``runs`` and ``epochs`` -> symbol and the matrix that it is measured on, in the page's order.
ISOTROPY_COLUMNS = {
    "embedding/ev1": ("EV1", "embeddings"),
    "embedding/ev2": ("EV₂", "embeddings"),
    "embedding/ev3": ("EV₃", "embeddings"),
    "embedding/i1": ("I₁", "embeddings"),
    "embedding/i2": ("I₂", "embeddings"),
    "head/i1": ("I₁", "head"),
    "head/i2": ("I₂", "head"),
}
CSS = {"#000000": "currentColor", "#ffffff": "var(--paper)"} | {
    PALETTE[index].lower() if PALETTE[index] != "#000000" else "#f0e442": f"var(--m{index})"
    for index in range(COLOURS)
}


class Style:
    """How a method is drawn everywhere on the page.

    Dashes and markers are shifted by one in each round of colours, so that no pair repeats early. ``index`` is the
    method's number, -1 for plain fine-tuning.
    """

    def __init__(self, index: int) -> None:
        rounds, position = divmod(max(index, 0), COLOURS)
        shift = 0 if index < 0 else 1 + position + rounds
        self.css = "currentColor" if index < 0 else f"var(--m{position})"
        self.colour = next(colour for colour, css in CSS.items() if css == self.css)
        self.dashes, self.marker = LINE_STYLES[shift % len(LINE_STYLES)], MARKERS[shift % len(MARKERS)]


def assign_styles(methods: Iterable[str]) -> dict[str, Style]:
    """Give every method a style; the same methods in the same order get the same styles."""
    others = [name for name in dict.fromkeys(methods) if name != BASE_METHOD]
    return {BASE_METHOD: Style(-1)} | {name: Style(index) for index, name in enumerate(others)}


class Panel:
    """A small figure that is drawn again and again: making its axes anew would take longer than drawing them."""

    def __init__(self) -> None:
        with use_figure_style():
            self.figure = Figure(figsize=SIZE)
            self.axis: Axes = self.figure.add_axes(BOX)
        self.axis.xaxis.set_label_coords(0.5, -0.2)  # finding a place for each label anew takes a third of the time
        self.axis.yaxis.set_label_coords(-0.19, 0.5)
        for patch in (self.figure.patch, self.axis.patch):
            patch.set_visible(False)

    def draw_curves(
        self, values: pd.DataFrame, runs_of: Mapping[str, np.ndarray], styles: dict[str, Style], title: str
    ) -> Markup | None:
        """Draw a measure against the epoch: a thin line for each run, a thick one for each method's mean.

        The mean at an epoch is over the runs that have reached it. Returns None unless a run has numbers at two
        epochs. ``values`` has a row for each run, a column for each epoch, and NaN where there is no number;
        ``runs_of``: method -> positions of its rows.
        """
        epochs, numbers = values.columns.to_numpy(), values.to_numpy()  # [epochs], [runs, epochs]
        is_known = ~np.isnan(numbers)
        if not (is_known.sum(1) > 1).any():
            return None
        self._clear()
        for method, positions in runs_of.items():
            style, runs = styles[method], numbers[positions[is_known[positions].any(1)]]
            reached = ~np.isnan(runs).all(0)
            if not reached.any():
                continue
            drawn = np.array(_subsample_evenly(runs, LIMITS["runs"]))
            with_gaps = np.pad(drawn, [(0, 0), (0, 1)], constant_values=np.nan)  # so that one line draws all runs
            x = np.tile([*epochs, np.nan], len(drawn))
            self.axis.plot(x, with_gaps.ravel(), color=style.colour, linewidth=0.6, alpha=0.45)
            means = np.nanmean(runs[:, reached], axis=0)
            marker = style.marker if len(means) == 1 else ""  # a line of one epoch can't be seen
            self.axis.plot(
                epochs[reached], means, style.dashes, color=style.colour, linewidth=1.5, marker=marker, markersize=3
            )
        x = np.broadcast_to(epochs, numbers.shape)
        return self._finish(x[is_known], numbers[is_known], "epoch", "", title)

    def draw_scatter(
        self, points: pd.DataFrame, styles: dict[str, Style], labels: tuple[str, str], title: str
    ) -> Markup | None:
        """Draw ``y`` of the points against ``x``, such as score against isotropy; None without points."""
        if points.empty:
            return None
        self._clear()
        drawn = points.iloc[_subsample_evenly(range(len(points)), LIMITS["points"])]
        for method, of_method in drawn.groupby("method", sort=False):
            style = styles[method]
            self.axis.plot(
                of_method["x"], of_method["y"], style.marker, color=style.colour, markersize=3, alpha=0.7, mew=0
            )
        return self._finish(drawn["x"].to_numpy(), drawn["y"].to_numpy(), *labels, title)

    def _clear(self) -> None:
        for artist in [*self.axis.lines, *self.axis.texts]:
            artist.remove()
        self.axis.set(xscale="linear", yscale="linear")
        self.axis.relim()
        self.axis.autoscale()

    def _finish(self, x: np.ndarray, y: np.ndarray, x_label: str, y_label: str, title: str) -> Markup:
        """Scale the axes by the values, label them, and write the panel as SVG."""
        self.axis.set(xlabel=x_label, ylabel=y_label)
        for values, axis, set_scale in (
            (x, self.axis.xaxis, self.axis.set_xscale),
            (y, self.axis.yaxis, self.axis.set_yscale),
        ):
            if values.min() > 0 and values.max() > 100 * values.min() and values.dtype.kind != "i":
                set_scale("log")
                axis.set_major_locator(LogLocator(numticks=4))
                axis.set_minor_locator(NullLocator())
            else:
                axis.set_major_locator(MaxNLocator(4, integer=values.dtype.kind == "i"))
        if self.axis.get_yscale() == "linear":
            cut_outliers(self.axis, x, y)
        return write_svg(self.figure, title)


def write_svg(figure: Figure, title: str) -> Markup:
    """Write a figure as SVG for the inside of a page, in the page's colours; ``title``: what it shows."""
    buffer = io.StringIO()
    with use_figure_style():
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("</defs>") + len("</defs>") :].replace("\n", "")  # before it: metadata, and a style for all
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r" font-family: [^;\"]*;?", "", svg)  # the page has a font of its own
    svg = re.sub("#[0-9a-f]{6}", lambda colour: CSS.get(colour[0], colour[0]), svg)
    width, height = (72 * length for length in figure.get_size_inches())
    head = Markup('<svg role="img" aria-label="{}" viewBox="0 0 {:g} {:g}">').format(title, width, height)
    return head + Markup(svg)


def _subsample_evenly(items: Sequence[Any], most: int) -> Sequence[Any]:
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def draw_curves(epochs: pd.DataFrame, styles: dict[str, Style]) -> list[dict[str, Any]]:
    """Draw the curves over training of each encoder and task, of no more than ``LIMITS`` allow."""
    measures = {"score": "Score"} | {name: ", ".join(words) for name, words in ISOTROPY_COLUMNS.items()}
    panel, groups = Panel(), []
    for (encoder, task), of_pair in list(epochs.groupby(["encoder", "task"], sort=False))[: LIMITS["groups"]]:
        runs = of_pair.drop_duplicates("key")
        runs_of = {method: np.flatnonzero(runs["method"] == method) for method in runs["method"].unique()}
        present = [name for name in measures if name in of_pair]
        values = of_pair.pivot(index="key", columns="epoch", values=present).loc[runs["key"]].astype(float)
        panels = {}
        for name in present:
            description = f"{measures[name]} against the epoch: {task}, {encoder}"
            if svg := panel.draw_curves(values[name].where(np.isfinite), runs_of, styles, description):
                panels[measures[name]] = svg
        if panels:
            shown = [method for method in styles if method in runs_of]
            groups.append({"title": f"{task}, {encoder}", "panels": panels, "methods": shown})
    return groups


def draw_isotropy(runs: pd.DataFrame, styles: dict[str, Style]) -> dict[str, Any]:
    """Draw score against isotropy, and write Spearman's correlation of both above each panel.

    Both are less their means of encoder and task if there are several (``is_centred``): else a correlation would
    reflect how these differ from each other.
    """
    scored = runs[np.isfinite(read_numbers(runs, "score"))]
    is_centred = len(scored[["encoder", "task"]].drop_duplicates()) > 1
    panel, panels, drawn = Panel(), {}, set[str]()
    for name in [name for name in ISOTROPY_COLUMNS if name in runs]:
        points = collect_points(runs, name)
        points = centre(points) if is_centred else points
        symbol, matrix = ISOTROPY_COLUMNS[name]
        labels = (f"{symbol} less mean", "score less mean") if is_centred else (symbol, "score")
        description = f"Score against {symbol} of the {matrix}, a point a run."
        if svg := panel.draw_scatter(points, styles, labels, description):
            correlation, count = correlate(points)
            panels[f"{symbol}, {matrix}: {format_signed(correlation)}, n = {count}"] = svg
            drawn |= set(points["method"])
    return {"panels": panels, "is_centred": is_centred, "methods": [name for name in styles if name in drawn]}


def collect_points(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return method, group (encoder and task), x (isotropy) and y (score) of the runs that have both."""
    group = runs.groupby(["encoder", "task"], sort=False).ngroup()
    x, y = read_numbers(runs, measure), read_numbers(runs, "score")
    points = pd.DataFrame({"method": runs["method"], "group": group, "x": x, "y": y})
    return points[np.isfinite(x) & np.isfinite(y)]


def centre(points: pd.DataFrame) -> pd.DataFrame:
    """Subtract from each point the mean over its encoder and task; leave out the only run of such a pair."""
    groups = points.groupby("group")
    # Values less their group's first one: where all are equal they are 0, and their mean is no rounded number.
    shifted = points[["x", "y"]] - groups[["x", "y"]].transform("first")
    centred = shifted - shifted.groupby(points["group"]).transform("mean")
    return points.assign(x=centred["x"], y=centred["y"])[groups["x"].transform("size") > 1]


def correlate(points: pd.DataFrame) -> tuple[float, int]:
    """Return Spearman's correlation of isotropy and score, NaN where there is none, and the number of points."""
    if len(points) < 3 or points["x"].nunique() < 2 or points["y"].nunique() < 2:
        return math.nan, len(points)
    return float(np.corrcoef(points["x"].rank(), points["y"].rank())[0, 1]), len(points)
