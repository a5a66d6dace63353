"""Draw the report page's figures: inline SVG in small panels, which a narrow screen can stack.

A panel's only text is axis labels and numbers; names of methods and tasks are in the HTML around it. Colours are the
page's CSS variables, so that a panel is readable on a light and on a dark page.
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from isobench.common.plots import FIGURE_STYLE, LINE_STYLES
from isobench.report.baseline_comparison import BASE_METHOD
from isobench.report.correlations import Points

T = TypeVar("T")
INK_PLACEHOLDER = "#010203"  # stands for the page's text colour
COLOUR_PLACEHOLDERS = [f"#fe01{i:02x}" for i in range(7)]  # stand for the page's --m0, --m1, ...
CSS_VARIABLES = {INK_PLACEHOLDER: "currentColor"} | {
    colour: f"var(--m{i})" for i, colour in enumerate(COLOUR_PLACEHOLDERS)
}
METHOD_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MAX_RUNS_DRAWN, MAX_POINTS_DRAWN = (
    10,
    600,
)  # most runs of a method in a panel of curves, most points in a scatter plot
PANEL_SIZE, AXES_FRAME = (2.4, 1.7), (0.2, 0.24, 0.76, 0.68)  # inches; left, bottom, width, height as parts of it
RC_PARAMS = FIGURE_STYLE | {
    "text.color": INK_PLACEHOLDER, "axes.labelcolor": INK_PLACEHOLDER, "axes.edgecolor": INK_PLACEHOLDER,
    "xtick.color": INK_PLACEHOLDER, "ytick.color": INK_PLACEHOLDER,
    "text.parse_math": False, "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "lines.linewidth": 1.5,
}  # fmt: skip


@dataclass(frozen=True)
class MethodStyle:
    """How a method is drawn everywhere on the page.

    Attributes:
        index: the method's number; -1 is plain fine-tuning, which has the colour of the text.
    """

    index: int

    @property
    def colour(self) -> str:
        """The colour for matplotlib: a placeholder, which ``render_svg`` replaces by the page's variable."""
        return INK_PLACEHOLDER if self.index < 0 else COLOUR_PLACEHOLDERS[self.index % len(COLOUR_PLACEHOLDERS)]

    @property
    def css(self) -> str:
        """The colour for the page: a CSS variable."""
        return CSS_VARIABLES[self.colour]

    @property
    def dash(self) -> str:
        """The line style, in matplotlib's notation."""
        return LINE_STYLES[self.style_index % len(LINE_STYLES)]

    @property
    def marker(self) -> str:
        """The marker, in matplotlib's notation."""
        return METHOD_MARKERS[self.style_index % len(METHOD_MARKERS)]

    @property
    def style_index(self) -> int:
        """Which dash and marker to take: shifted by one in each round of colours, so that no pair repeats early."""
        if self.index < 0:
            return 0
        rounds, position = divmod(self.index, len(COLOUR_PLACEHOLDERS))
        return 1 + position + rounds


def assign_styles(methods: Iterable[str]) -> dict[str, MethodStyle]:
    """Give every method a style; the same methods in the same order get the same styles."""
    names = list(dict.fromkeys(methods))
    others = [name for name in names if name != BASE_METHOD]
    plain = {BASE_METHOD: MethodStyle(-1)} if BASE_METHOD in names else {}
    return plain | {name: MethodStyle(index) for index, name in enumerate(others)}


class PanelDrawer:
    """Draws one panel after another on the same axes, because making axes takes longer than drawing on them."""

    def __init__(self) -> None:
        with matplotlib.rc_context(RC_PARAMS):
            self.figure = Figure(figsize=PANEL_SIZE)
            self.canvas = FigureCanvasSVG(self.figure)
            self.axes = self.figure.add_axes(AXES_FRAME)
        self.figure.patch.set_visible(False)
        self.axes.patch.set_visible(False)
        self.drawn = 0

    def draw_panel(
        self, paint: Callable[[Axes], None], x: str, y: str, description: str, integers: bool = False
    ) -> Markup:
        """Draw one panel and return it as SVG.

        Args:
            paint: draws lines on the axes.
            x: label of the horizontal axis.
            y: label of the vertical axis.
            description: what the panel shows, for readers who can't see it.
            integers: True if the horizontal axis has whole numbers only.
        """
        with matplotlib.rc_context(RC_PARAMS):
            paint(self.axes)
            self.axes.set_xlabel(x)
            self.axes.set_ylabel(y)
            for name in ("x", "y"):
                values = [value for line in self.axes.lines for value in getattr(line, f"get_{name}data")()]
                set_ticks(self.axes, name, values, integers and name == "x")
            self.axes.relim()
            self.axes.autoscale()
            svg = self.render_svg(description)
        for line in list(self.axes.lines):
            line.remove()
        return svg

    def render_svg(self, description: str) -> Markup:
        """Write the panel as SVG for a page: no header, no styles of its own, ids that no other panel has."""
        self.drawn += 1
        out = io.StringIO()
        no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self.canvas.print_svg(out, metadata=no_metadata)
        text = out.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
        text = re.sub(r'<g id="[^"]*">', "<g>", text)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>f{self.drawn}-", text)
        text = re.sub(r' width="[^"]*" height="[^"]*" viewBox', " viewBox", text, count=1)
        text = re.sub(r"font-family: [^;\"]*;?", "", text)
        text = re.sub(r"\s*\n\s*", " ", text)
        for colour, variable in CSS_VARIABLES.items():
            text = text.replace(colour, variable)
        return Markup(text).replace("<svg", Markup('<svg role="img" aria-label="{}"').format(description), 1)


def set_ticks(axes: Axes, name: str, values: Sequence[float], integers: bool = False) -> None:
    """Put at most four short labels on axis ``name`` (x or y); powers of ten if values span more than two of them."""
    axis = {"x": axes.xaxis, "y": axes.yaxis}[name]
    finite = [value for value in values if math.isfinite(value)]
    if finite and min(finite) > 0 and max(finite) / min(finite) > 100 and not integers:
        axes.set(**{f"{name}scale": "log"})
        axis.set_major_locator(LogLocator(numticks=4))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}".replace("e-0", "e\N{MINUS SIGN}")))
        axis.set_minor_locator(NullLocator())
        return
    axes.set(**{f"{name}scale": "linear"})
    axis.set_major_locator(MaxNLocator(4, integer=integers))
    axis.get_major_formatter().set_powerlimits((-2, 4))  # type: ignore[attr-defined]


def draw_curves(
    drawer: PanelDrawer,
    runs: Mapping[str, Sequence[np.ndarray]],
    epochs: np.ndarray,
    values: np.ndarray,
    styles: dict[str, MethodStyle],
    description: str,
) -> Markup | None:
    """Draw a measure against the epoch: a thin line for each run, a thick one for each method's mean.

    The mean at an epoch is over the runs that have reached it. None if no epoch has a number.

    Args:
        drawer: draws the panel.
        runs: method -> for each of its runs the indices of its epochs.
        epochs: number of each epoch. [N]
        values: of the measure; NaN where there is none. [N]
        styles: of the methods, in the order in which they are drawn.
        description: what the panel shows.
    """
    usable = np.isfinite(epochs) & np.isfinite(values)
    lines = {
        method: usable_runs
        for method in styles
        if (usable_runs := [run[usable[run]] for run in runs.get(method, []) if usable[run].any()])
    }
    if not lines:
        return None

    def paint(axes: Axes) -> None:
        for method, own in lines.items():
            thin = [run[np.lexsort((values[run], epochs[run]))] for run in subsample_evenly(own, MAX_RUNS_DRAWN)]
            x, y = (np.concatenate([np.append(column[run], np.nan) for run in thin]) for column in (epochs, values))
            axes.plot(x, y, color=styles[method].colour, lw=0.6, alpha=0.45, zorder=1)
        for method, own in lines.items():
            joined = np.concatenate(own)
            xs = np.unique(epochs[joined])
            means = [values[joined[epochs[joined] == x]].mean() for x in xs]
            marker = styles[method].marker if len(xs) == 1 else ""  # a line of one epoch can't be seen
            axes.plot(xs, means, color=styles[method].colour, ls=styles[method].dash, marker=marker, ms=3, zorder=2)

    return drawer.draw_panel(paint, "epoch", "", description, integers=True)


def draw_scatter(
    drawer: PanelDrawer, points: Points, styles: dict[str, MethodStyle], x: str, y: str, description: str
) -> Markup | None:
    """Draw score against isotropy, a point for each run; None without points."""
    if len(points) == 0:
        return None

    def paint(axes: Axes) -> None:
        drawn = points.select(np.array(subsample_evenly(range(len(points)), MAX_POINTS_DRAWN)))
        for method in styles:
            own = drawn.select(drawn.methods == method)
            if len(own):
                colour, marker = styles[method].colour, styles[method].marker
                axes.plot(own.x, own.y, color=colour, marker=marker, ls="", ms=3, mew=0, alpha=0.7)

    return drawer.draw_panel(paint, x, y, description)


def subsample_evenly(items: Sequence[T], most: int) -> Sequence[T]:
    """Return at most ``most`` of the items, evenly spaced."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
