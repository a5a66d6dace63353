"""Draw the page's figures with matplotlib, as SVG in the page's own colours: readable light, dark and printed.

A panel's only text is axis labels and numbers. Names of methods and tasks are in the HTML around it, which a narrow
screen can stack.
"""

import io
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

import matplotlib
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from isobench.common.plots import FIGURE_STYLE, LINE_STYLES, PALETTE, cut_outliers
from isobench.report.tables import BASE_METHOD

T = TypeVar("T")
SIZE, BOX = (2.4, 1.7), (0.2, 0.24, 0.76, 0.68)  # of a panel in inches, and of its axes as shares of it
COLOURS = 7  # of the page: its CSS variables --m0, --m1, ...; plain fine-tuning has the colour of the text
MARKERS = "os^DvPX"
MAX_RUNS_DRAWN, MAX_POINTS_DRAWN = 10, 600  # runs of a method in a panel of curves, points in a scatter plot
CSS = {"#000000": "currentColor", "#ffffff": "var(--paper)"} | {
    PALETTE[index].lower() if PALETTE[index] != "#000000" else "#f0e442": f"var(--m{index})"
    for index in range(COLOURS)
}


class Style:
    """How a method is drawn everywhere on the page.

    Dashes and markers are shifted by one in each round of colours, so that no pair repeats early.

    Args:
        index: the method's number; -1 is plain fine-tuning.
    """

    def __init__(self, index: int) -> None:
        rounds, position = divmod(max(index, 0), COLOURS)
        place = 0 if index < 0 else 1 + position + rounds
        self.css = "currentColor" if index < 0 else f"var(--m{position})"
        self.colour = next(colour for colour, css in CSS.items() if css == self.css)
        self.dashes, self.marker = LINE_STYLES[place % len(LINE_STYLES)], MARKERS[place % len(MARKERS)]


def assign_styles(methods: Iterable[str]) -> dict[str, Style]:
    """Give every method a style; the same methods in the same order get the same styles."""
    names = list(dict.fromkeys(methods))
    others = [name for name in names if name != BASE_METHOD]
    plain = {BASE_METHOD: Style(-1)} if BASE_METHOD in names else {}
    return plain | {name: Style(index) for index, name in enumerate(others)}


class Panel:
    """A small figure that is drawn again and again: making its axes anew would take longer than drawing them."""

    def __init__(self) -> None:
        with matplotlib.rc_context(FIGURE_STYLE):
            self.figure = Figure(figsize=SIZE)
            self.axis: Axes = self.figure.add_axes(BOX)
        for patch in (self.figure.patch, self.axis.patch):
            patch.set_visible(False)

    def draw_curves(self, epochs: pd.DataFrame, measure: str, styles: dict[str, Style], title: str) -> Markup | None:
        """Draw a measure against the epoch: a thin line for each run, a thick one for each method's mean.

        The mean at an epoch is over the runs that have reached it. Returns None unless a run has numbers at two
        epochs.

        Args:
            epochs: rows of ``epochs`` of one encoder and task.
            measure: the column.
            styles: of the methods, in the order in which they are drawn.
            title: what the panel shows, for readers who can't see it.
        """
        usable = epochs[np.isfinite(epochs[measure].to_numpy(float))]
        if not (usable.groupby("key")["epoch"].nunique() > 1).any():
            return None
        self._clear()
        for method, own in usable.groupby("method", sort=False):
            style = styles[method]
            drawn = subsample_evenly(list(own.sort_values("epoch").groupby("key", sort=False)), MAX_RUNS_DRAWN)
            x, y = (np.concatenate([[*run[name], np.nan] for _, run in drawn]) for name in ("epoch", measure))
            self.axis.plot(x, y, color=style.colour, linewidth=0.6, alpha=0.45)
            means = own.groupby("epoch")[measure].mean()
            marker = style.marker if len(means) == 1 else ""  # a line of one epoch can't be seen
            self.axis.plot(
                means.index, means, style.dashes, color=style.colour, linewidth=1.5, marker=marker, markersize=3
            )
        return self._finish(usable["epoch"], usable[measure], "epoch", "", title, has_integers=True)

    def draw_scatter(
        self, points: pd.DataFrame, styles: dict[str, Style], labels: tuple[str, str], title: str
    ) -> Markup | None:
        """Draw score against isotropy, a point for each run; None without points.

        Args:
            points: with ``method``, ``x`` and ``y``.
            styles: of the methods.
            labels: of the two axes.
            title: what the panel shows.
        """
        if points.empty:
            return None
        self._clear()
        drawn = points.iloc[subsample_evenly(range(len(points)), MAX_POINTS_DRAWN)]
        for method, own in drawn.groupby("method", sort=False):
            style = styles[method]
            self.axis.plot(own["x"], own["y"], style.marker, color=style.colour, markersize=3, alpha=0.7, mew=0)
        return self._finish(drawn["x"], drawn["y"], *labels, title)

    def _clear(self) -> None:
        for artist in [*self.axis.lines, *self.axis.texts]:
            artist.remove()
        self.axis.set(xscale="linear", yscale="linear")
        self.axis.relim()
        self.axis.autoscale()

    def _finish(
        self, x: pd.Series, y: pd.Series, x_label: str, y_label: str, title: str, has_integers: bool = False
    ) -> Markup:
        """Scale the axes by the values, label them, and write the panel as SVG."""
        self.axis.set(xlabel=x_label, ylabel=y_label)
        for values, axis, set_scale in (
            (x, self.axis.xaxis, self.axis.set_xscale),
            (y, self.axis.yaxis, self.axis.set_yscale),
        ):
            is_number_of_epoch = has_integers and values is x
            if values.min() > 0 and values.max() > 100 * values.min() and not is_number_of_epoch:
                set_scale("log")
                axis.set_major_locator(LogLocator(numticks=4))
                axis.set_minor_locator(NullLocator())
            else:
                axis.set_major_locator(MaxNLocator(4, integer=is_number_of_epoch))
        if self.axis.get_yscale() == "linear":
            cut_outliers(self.axis, x.to_numpy(float), y.to_numpy(float))
        return write_svg(self.figure, title)


def write_svg(figure: Figure, title: str) -> Markup:
    """Write a figure as SVG for the inside of a page, in the page's colours; ``title``: what it shows."""
    buffer = io.StringIO()
    with matplotlib.rc_context(FIGURE_STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("</defs>") + len("</defs>") :].replace("\n", "")  # before it: metadata, and a style for all
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r" font-family: [^;\"]*;?", "", svg)  # the page has a font of its own
    svg = re.sub("#[0-9a-f]{6}", lambda colour: CSS.get(colour[0], colour[0]), svg)
    width, height = (72 * length for length in figure.get_size_inches())
    head = Markup('<svg role="img" aria-label="{}" viewBox="0 0 {:g} {:g}">').format(title, width, height)
    return head + Markup(svg)


def subsample_evenly(items: Sequence[T], most: int) -> Sequence[T]:
    """Return at most ``most`` of the items, evenly spaced."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
