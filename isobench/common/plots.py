"""How figures look: a paper's column or page wide, colours that the colour-blind tell apart, scale said below."""

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
# Okabe & Ito (2008), in an order that keeps neighbours apart in lightness too.
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
    """The look of everything drawn inside."""
    with matplotlib.rc_context(FIGURE_STYLE):
        yield


def make_panels(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure with rows x columns panels, ``height`` inches each; returns it and its axes [rows, columns].

    One column of panels is a paper's column wide, more are a page.
    """
    width = COLUMN_WIDTH if columns == 1 else PAGE_WIDTH
    figure = Figure(figsize=(width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def make_panel_grid(
    names: Sequence[str], height: float, across: int = 4, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with one titled panel a name, at most ``across`` beside each other; returns it and its axes."""
    columns = min(across, len(names))
    figure, axes = make_panels(-(-len(names) // columns), columns, height, **options)
    flat = list(axes.flat)
    for name, axis in zip(names, flat, strict=False):
        axis.set_title(name)
    for axis in flat[len(names) :]:
        axis.remove()
    return figure, flat[: len(names)]


def add_scale_note(figure: Figure, differs: Sequence[str]) -> None:
    """Write below a figure how it is not the paper's setting."""
    if differs:
        wide = 75 if figure.get_figwidth() < PAGE_WIDTH else 160
        text = textwrap.fill(f"Not the paper's setting: {'; '.join(differs)}.", wide)
        figure.supxlabel(text, fontsize=6, color="0.35", x=0.01, ha="left")
