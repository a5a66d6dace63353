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
    """Make a figure of rows x columns panels; return it and its axes, an array [rows, columns].

    A figure with one column of panels is as wide as a paper's column, any other as wide as a page.

    Args:
        rows, columns: number of panels.
        height: of each panel, in inches.
        options: further arguments of matplotlib's ``subplots``.
    """
    width = COLUMN_WIDTH if columns == 1 else PAGE_WIDTH
    figure = Figure(figsize=(width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def make_panel_grid(
    names: Sequence[str], height: float, across: int = 4, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Make a figure with one titled panel for each name; return it and the panels' axes.

    Args:
        names: titles of the panels.
        height: of each panel, in inches.
        across: largest number of panels in a row.
        options: further arguments of matplotlib's ``subplots``.
    """
    columns = min(across, len(names))
    figure, axes = make_panels(-(-len(names) // columns), columns, height, **options)
    flat = list(axes.flat)
    for name, axis in zip(names, flat, strict=False):
        axis.set_title(escape_math(name))
    for axis in flat[len(names) :]:
        axis.remove()
    return figure, flat[: len(names)]


def add_scale_note(figure: Figure, differs: Sequence[str]) -> None:
    """Write below a figure how its setting differs from the paper's; ``differs`` lists the differences."""
    if differs:
        characters = 75 if figure.get_figwidth() < PAGE_WIDTH else 160
        text = textwrap.fill(f"Not the paper's setting: {'; '.join(differs)}.", characters)
        figure.supxlabel(escape_math(text), fontsize=6, color="0.35", x=0.01, ha="left")


def escape_math(text: str) -> str:
    """Escape a text that is no formula: matplotlib would read what stands between two dollar signs as one."""
    return text.replace("$", r"\$")
