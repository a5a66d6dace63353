"""The look of figures: as wide as a paper's column or page, in colours that colour-blind readers can tell apart."""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMN_WIDTH, PAGE_WIDTH = 3.4, 7.0  # inches
# The colours of Okabe & Ito (2008), ordered so that neighbours also differ in lightness.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
LINE_STYLES = ("-", "--", "-.", ":")
FEWEST = 5  # values that an axis must have before any of them is an outlier
FAR, MOST = 3, 5  # times as far as nine tenths of all values; how many may be outliers
TITLE_CHARACTERS = 15  # how many characters of a panel's title fit into one inch of its width
FIGURE_STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=PALETTE),
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "figure.dpi": 100,
    "savefig.dpi": 250,
    "svg.fonttype": "none",
    "svg.hashsalt": "isobench",
}


@contextmanager
def use_figure_style() -> Iterator[None]:
    """A context in which everything that matplotlib draws has this look."""
    with matplotlib.rc_context(FIGURE_STYLE):
        yield


def make_panels(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, np.ndarray]:
    """Make a figure of panels, each ``height`` inches high; return it and its axes, an array [rows, columns].

    A figure with one column of panels is as wide as a paper's column, any other as wide as a page. ``options`` are
    further arguments of matplotlib's ``subplots``.
    """
    width = COLUMN_WIDTH if columns == 1 else PAGE_WIDTH
    figure = Figure(figsize=(width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def make_panel_grid(
    names: Sequence[str], height: float, across: int = 4, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Make a figure as `make_panels` does, with a titled panel for each name, at most ``across`` in a row."""
    columns = min(across, len(names))
    figure, axes = make_panels(-(-len(names) // columns), columns, height, **options)
    flat = list(axes.flat)
    characters = int(TITLE_CHARACTERS * figure.get_figwidth() / columns)
    for name, axis in zip(names, flat, strict=False):
        axis.set_title(escape_math(textwrap.fill(name, characters)))
    for axis in flat[len(names) :]:
        axis.remove()
    return figure, flat[: len(names)]


def add_finding(axis: Axes, text: str) -> None:
    """Write a text that sums up a panel's numbers between the panel and its title, in small grey letters."""
    lines = text.count("\n") + 1
    axis.set_title(axis.get_title(), pad=6 + 9 * lines)  # points
    axis.annotate(
        text, (0.5, 1), (0, 3), "axes fraction", "offset points",
        ha="center", va="bottom", fontsize=FIGURE_STYLE["xtick.labelsize"], color="0.35", annotation_clip=False,
    )  # fmt: skip


def cut_outliers(axis: Axes, x: np.ndarray, y: np.ndarray, include: float | None = None) -> None:
    """End the vertical axis before the few values that would squeeze all others, and mark these by arrows.

    The values y [n] have been drawn at x [n]. Each of them beyond the axis gets an arrow at the edge, and the
    farthest is written beside its arrow. ``include`` stays on the axis, such as the 0 where bars begin.
    """
    outliers = find_outliers(y)
    if not outliers.any():
        return
    shown = y[~outliers & np.isfinite(y)]
    low, high = shown.min(), shown.max()
    if include is not None:
        low, high = min(low, include), max(high, include)
    margin = 0.08 * (high - low)
    low -= margin * (low != include)  # bars begin at the edge itself
    high += margin * (high != include)
    axis.set_ylim(low, high)
    for edge, beyond in ((low, outliers & (y < low)), (high, outliers & (y > high))):
        if beyond.any():
            _mark_outliers(axis, x[beyond], y[beyond], edge)


def _mark_outliers(axis: Axes, x: np.ndarray, y: np.ndarray, edge: float) -> None:
    """Mark values [n] beyond an edge of the axis by arrows, and write the farthest beside its arrow."""
    is_above = y[0] > edge
    axis.plot(x, np.full(len(x), edge), "^" if is_above else "v", color="black", markersize=4, clip_on=False)
    farthest = np.argmax(np.abs(y - edge))
    is_right = x[farthest] > sum(axis.get_xlim()) / 2
    axis.annotate(
        f"{y[farthest]:.3g}", (x[farthest], edge), (-4 if is_right else 4, -1 if is_above else 1),
        textcoords="offset points", ha="right" if is_right else "left", va="top" if is_above else "bottom",
        fontsize=FIGURE_STYLE["xtick.labelsize"], bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5},
    )  # fmt: skip


def find_outliers(values: np.ndarray) -> np.ndarray:
    """Mark by True [n] the values, ``MOST`` at most, that are far from the median.

    Far is more than ``FAR`` times as far as nine tenths of all values are.

    Args:
        values: [n], in the axis's unit, logarithms for a logarithmic axis; one that is not finite is no outlier.
    """
    finite = np.isfinite(values)
    if finite.sum() < FEWEST:
        return np.zeros(len(values), bool)
    distances = np.where(finite, np.abs(values - np.median(values[finite])), 0)
    limit = max(FAR * np.quantile(distances[finite], 0.9, method="lower"), np.sort(distances)[-MOST - 1 :][0])
    return (distances > limit) & (limit > 0)


def add_scale_note(figure: Figure, note: str) -> None:
    """Write below a figure how its setting differs from the paper's; nothing for an empty note."""
    if note:
        text = textwrap.fill(note, 75 if figure.get_figwidth() < PAGE_WIDTH else 160)
        figure.supxlabel(escape_math(text), fontsize=6, color="0.35", x=0.01, ha="left")


def escape_math(text: str) -> str:
    """Escape a text that is no formula: matplotlib would read what stands between two dollar signs as one."""
    return text.replace("$", r"\$")
