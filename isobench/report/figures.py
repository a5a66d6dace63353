"""The report page's figures: inline SVG, one small panel each, so that a narrow screen can stack them.

The only text in a panel is axis labels and numbers: whatever names something (a method, a task) is in the HTML
around it. Colours are the page's CSS variables, so a panel is readable on a light and on a dark page.
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
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
from isobench.report.document import TidyRows
from isobench.report.page_data import Point, to_finite_float

T = TypeVar("T")
INK_PLACEHOLDER = "#010203"  # stands for the page's text colour
COLOUR_PLACEHOLDERS = [f"#fe01{i:02x}" for i in range(7)]  # stand for the page's --m0, --m1, ...
CSS_VARIABLES = {INK_PLACEHOLDER: "currentColor"} | {
    colour: f"var(--m{i})" for i, colour in enumerate(COLOUR_PLACEHOLDERS)
}
METHOD_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MAX_RUNS_DRAWN, MAX_POINTS_DRAWN = 10, 600  # at most: runs of a method in a panel of curves, points in a scatter
PANEL_SIZE, AXES_FRAME = (2.4, 1.7), (0.2, 0.24, 0.76, 0.68)  # inches; left, bottom, width, height as parts of it
RC_PARAMS = FIGURE_STYLE | {
    "text.color": INK_PLACEHOLDER, "axes.labelcolor": INK_PLACEHOLDER, "axes.edgecolor": INK_PLACEHOLDER,
    "xtick.color": INK_PLACEHOLDER, "ytick.color": INK_PLACEHOLDER,
    "text.parse_math": False, "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "lines.linewidth": 1.5,
}  # fmt: skip


@dataclass(frozen=True)
class MethodStyle:
    """How a method is drawn everywhere on the page: its number, -1 for plain fine-tuning, which is in ink."""

    index: int

    @property
    def colour(self) -> str:
        """As matplotlib takes it."""
        return INK_PLACEHOLDER if self.index < 0 else COLOUR_PLACEHOLDERS[self.index % len(COLOUR_PLACEHOLDERS)]

    @property
    def css(self) -> str:
        """As the page takes it."""
        return CSS_VARIABLES[self.colour]

    @property
    def dash(self) -> str:
        """As matplotlib takes it."""
        return LINE_STYLES[self.step % len(LINE_STYLES)]

    @property
    def marker(self) -> str:
        """As matplotlib takes it."""
        return METHOD_MARKERS[self.step % len(METHOD_MARKERS)]

    @property
    def step(self) -> int:
        """Grows with the colour, and once more when the colours start anew."""
        return (
            0
            if self.index < 0
            else 1 + self.index % len(COLOUR_PLACEHOLDERS) + self.index // len(COLOUR_PLACEHOLDERS)
        )


def assign_styles(methods: Iterable[str]) -> dict[str, MethodStyle]:
    """A look for every method; the same for the same methods in the same order."""
    names = list(dict.fromkeys(methods))
    others = [name for name in names if name != BASE_METHOD]
    plain = {BASE_METHOD: MethodStyle(-1)} if BASE_METHOD in names else {}
    return plain | {name: MethodStyle(index) for index, name in enumerate(others)}


class PanelDrawer:
    """Draws one panel after the other on the same axes: making axes takes longer than drawing on them."""

    def __init__(self) -> None:
        with matplotlib.rc_context(RC_PARAMS):
            self.figure = Figure(figsize=PANEL_SIZE)
            self.canvas = FigureCanvasSVG(self.figure)
            self.axes = self.figure.add_axes(AXES_FRAME)
        self.figure.patch.set_visible(False)
        self.axes.patch.set_visible(False)
        self.drawn = 0

    def draw_panel(self, paint: Callable[[Axes], None], x: str, y: str, says: str, integers: bool = False) -> Markup:
        """What ``paint`` puts on the axes, as SVG; ``says``: its description for who can't see it."""
        with matplotlib.rc_context(RC_PARAMS):
            paint(self.axes)
            self.axes.set_xlabel(x)
            self.axes.set_ylabel(y)
            for name in ("x", "y"):
                values = [value for line in self.axes.lines for value in getattr(line, f"get_{name}data")()]
                set_ticks(self.axes, name, values, integers and name == "x")
            self.axes.relim()
            self.axes.autoscale()
            svg = self.save(says)
        for line in list(self.axes.lines):
            line.remove()
        return svg

    def save(self, says: str) -> Markup:
        """The panel as it stands, without what an inline SVG has no use for, its ids the page's only ones."""
        self.drawn += 1
        out = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self.canvas.print_svg(out, metadata=nothing)
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
        return Markup(text).replace("<svg", Markup('<svg role="img" aria-label="{}"').format(says), 1)


def set_ticks(axes: Axes, name: str, values: Sequence[float], integers: bool = False) -> None:
    """At most four short labels on axis x or y; powers of ten where the numbers span more than two of them."""
    axis = {"x": axes.xaxis, "y": axes.yaxis}[name]
    known = [value for value in values if math.isfinite(value)]
    if known and min(known) > 0 and max(known) / min(known) > 100 and not integers:
        axes.set(**{f"{name}scale": "log"})
        axis.set_major_locator(LogLocator(numticks=4))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}".replace("e-0", "e\N{MINUS SIGN}")))
        axis.set_minor_locator(NullLocator())
        return
    axes.set(**{f"{name}scale": "linear"})
    axis.set_major_locator(MaxNLocator(4, integer=integers))
    axis.get_major_formatter().set_powerlimits((-2, 4))  # type: ignore[attr-defined]


def draw_curves(
    sheet: PanelDrawer, epochs: TidyRows, measure: str, look: dict[str, MethodStyle], says: str
) -> Markup | None:
    """A measure against the epoch: a thin line a run, the mean of each method's on top; None without a number.

    The mean is of the runs that have come as far.
    """
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in epochs:
        epoch, value = to_finite_float(row.get("epoch")), to_finite_float(row.get(measure))
        if epoch is not None and value is not None:
            runs = lines.setdefault(str(row.get("method")), {})
            runs.setdefault(str(row.get("key")), []).append((epoch, value))
    if not lines:
        return None

    def paint(axes: Axes) -> None:
        for method in (name for name in look if name in lines):
            runs = [sorted(run) for run in lines[method].values()]
            joined = [point for run in subsample_evenly(runs, MAX_RUNS_DRAWN) for point in [*run, (np.nan, np.nan)]]
            axes.plot(*zip(*joined, strict=True), color=look[method].colour, lw=0.6, alpha=0.45, zorder=1)
        for method in (name for name in look if name in lines):
            of_epoch: dict[float, list[float]] = {}
            for epoch, value in (point for run in lines[method].values() for point in run):
                of_epoch.setdefault(epoch, []).append(value)
            xs = sorted(of_epoch)
            means = [float(np.mean(of_epoch[x])) for x in xs]
            marker = look[method].marker if len(xs) == 1 else ""  # a line of one epoch can't be seen
            axes.plot(xs, means, color=look[method].colour, ls=look[method].dash, marker=marker, ms=3, zorder=2)

    return sheet.draw_panel(paint, "epoch", "", says, integers=True)


def draw_scatter(
    sheet: PanelDrawer, cloud: Sequence[Point], look: dict[str, MethodStyle], x: str, y: str, says: str
) -> Markup | None:
    """Score against isotropy, a point a run; None without a point."""
    if not cloud:
        return None

    def paint(axes: Axes) -> None:
        shown = subsample_evenly(cloud, MAX_POINTS_DRAWN)
        for method in look:
            own = [(point.x, point.y) for point in shown if point.method == method]
            if own:
                colour, marker = look[method].colour, look[method].marker
                axes.plot(*zip(*own, strict=True), color=colour, marker=marker, ls="", ms=3, mew=0, alpha=0.7)

    return sheet.draw_panel(paint, x, y, says)


def subsample_evenly(items: Sequence[T], most: int) -> Sequence[T]:
    """At most so many of the items, evenly spaced."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
