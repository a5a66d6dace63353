"""Draw one panel of the report's page: lines or points on two axes with a few ticks, as inline SVG.

matplotlib chooses the ticks and writes their labels. The SVG is written here, because drawing a figure with
matplotlib takes 25 ms, and a report may have hundreds of panels. A panel's only text is axis labels and numbers.
Colours are the page's CSS variables, so that a panel is readable on a light and on a dark page.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import LogLocator, MaxNLocator, ScalarFormatter
from matplotlib.transforms import nonsingular

from isobench.common.outliers import find_outliers

WIDTH, HEIGHT = 172.8, 122.4  # of a panel, in points, like all lengths here
LEFT, RIGHT, TOP, BOTTOM = 34.56, 165.888, 9.792, 93.024  # edges of the axes
MARGIN = 0.05  # by this share of the data's range the axes are longer than it, at either end
TICK_LENGTH, LABEL_GAP = 3.5, 7.0  # the gap is from an axis to its numbers
FONT_SIZE, NUMBER_SIZE, DIGIT_WIDTH = 8, 7, 4.4
POWER_LIMITS = (-2, 4)  # numbers on an axis beyond these powers of ten are written with a common power
# Shapes 3 points wide around the point where they start, by the names that matplotlib gives them.
MARKER_SHAPES = {
    "o": "m-1.5 0a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0z",
    "s": "m-1.5-1.5h3v3h-3z",
    "^": "m0-1.5l1.5 3h-3z",
    "D": "m0-2.1l2.1 2.1l-2.1 2.1l-2.1-2.1z",
    "v": "m0 1.5l1.5-3h-3z",
    "P": "m-.5-1.5h1v1h1v1h-1v1h-1v-1h-1v-1h1z",
    "X": "m0-.75l.75-.75l.75.75l-.75.75l.75.75l-.75.75l-.75-.75l-.75.75l-.75-.75l.75-.75l-.75-.75l.75-.75z",
}


@dataclass(frozen=True)
class Series:
    """A line through points, or the points alone.

    Attributes:
        x: in the data's unit; NaN interrupts the line. [n]
        y: as x. [n]
        colour: for CSS.
        marker: name of the points' shape, one of ``MARKER_SHAPES``; empty for a line.
        width: of the line.
        dashes: of the line, in SVG's notation; empty for a solid one.
        opacity: from 0 to 1.
    """

    x: np.ndarray
    y: np.ndarray
    colour: str
    marker: str = ""
    width: float = 1.5
    dashes: str = ""
    opacity: float = 1.0


class Axis:
    """Place values on one axis of a panel, which has a range and at most about four ticks.

    The scale is logarithmic if the values are positive and span more than two powers of ten. A few values that would
    squeeze all others are left out of the range.

    Args:
        values: what is drawn; at least one is finite.
        start: position of the axis' low end in the panel.
        end: position of its high end.
        integers: True if the values are whole numbers; the scale is then linear.
    """

    def __init__(self, values: np.ndarray, start: float, end: float, integers: bool = False) -> None:
        self.start, self.end = start, end
        finite = values[np.isfinite(values)]
        has_powers = finite.min() > 0 and finite.max() > 100 * finite.min() and not integers
        if not integers:
            finite = finite[~find_outliers(np.log10(finite) if has_powers else finite)]
        low, high = float(finite.min()), float(finite.max())
        self.is_log = bool(has_powers and high > 100 * low)
        if self.is_log:
            self.low, self.high = widen(math.log10(low), math.log10(high))
            ticks = LogLocator(numticks=4).tick_values(10**self.low, 10**self.high)
            labels = [f"{tick:.0e}".replace("e-0", "e\N{MINUS SIGN}") for tick in ticks]
            self.power = ""
        else:
            self.low, self.high = nonsingular(*widen(*nonsingular(low, high, expander=0.05)))
            ticks = MaxNLocator(4, integer=integers).tick_values(self.low, self.high)
            formatter = ScalarFormatter()
            formatter.set_powerlimits(POWER_LIMITS)
            formatter.create_dummy_axis()
            formatter.axis.set_view_interval(self.low, self.high)  # type: ignore[union-attr]
            labels = formatter.format_ticks(list(ticks))
            self.power = formatter.get_offset()  # what the labels are to be multiplied by, or added to
        positions = self.place(np.asarray(ticks)).tolist()
        near, far = min(start, end) - 1e-6, max(start, end) + 1e-6
        self.ticks = [(place, text) for place, text in zip(positions, labels, strict=True) if near <= place <= far]

    def place(self, values: np.ndarray) -> np.ndarray:
        """Return the positions of values in the panel. [n]"""
        return self.start + self.find_shares(values) * (self.end - self.start)

    def find_shares(self, values: np.ndarray) -> np.ndarray:
        """Return where values lie on the axis: 0 at its low end, 1 at its high end, others beyond. [n]"""
        scaled = np.log10(values) if self.is_log else values
        return (scaled - self.low) / (self.high - self.low)

    def place_inside(self, values: np.ndarray) -> np.ndarray:
        """Return the positions of values in the panel; a value beyond the axis gets the position of its end. [n]"""
        return self.start + np.clip(self.find_shares(values), 0, 1) * (self.end - self.start)


def widen(low: float, high: float) -> tuple[float, float]:
    """Make a range longer by ``MARGIN`` of it at either end."""
    margin = MARGIN * (high - low)
    return low - margin, high + margin


def draw_panel(series: Sequence[Series], x: str, y: str, description: str, integers: bool = False) -> Markup:
    """Draw one panel and return it as SVG.

    Args:
        series: what to draw, from the back to the front; one of them has a point.
        x: label of the horizontal axis.
        y: label of the vertical axis.
        description: what the panel shows, for readers who can't see it.
        integers: True if the horizontal axis has whole numbers only.
    """
    across = Axis(np.concatenate([own.x for own in series]), LEFT, RIGHT, integers)
    up = Axis(np.concatenate([own.y for own in series]), BOTTOM, TOP)
    head = f'<svg role="img" aria-label="{{}}" viewBox="0 0 {WIDTH} {HEIGHT}" xmlns="http://www.w3.org/2000/svg">'
    parts = [Markup(head).format(description)]
    parts += [write_series(own, across.place_inside(own.x), up.place_inside(own.y)) for own in series]
    frame = f"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"
    frame += "".join(f"M{place:.2f} {BOTTOM}v{TICK_LENGTH}" for place, _ in across.ticks)
    frame += "".join(f"M{LEFT} {place:.2f}h-{TICK_LENGTH}" for place, _ in up.ticks)
    parts.append(Markup(f'<path d="{frame}" style="fill: none; stroke: currentColor; stroke-width: 0.6"/>'))
    numbers = [write_text(text, place, BOTTOM + 12.3, "middle") for place, text in across.ticks]
    numbers += [write_text(text, LEFT - LABEL_GAP, place + 2.66, "end") for place, text in up.ticks]
    numbers += write_outliers(series, across, up)
    numbers += [write_text(across.power, RIGHT, BOTTOM + 22, "end"), write_text(up.power, LEFT, TOP - 3, "start")]
    parts.append(Markup('<g style="font-size: {}px; fill: currentColor">').format(NUMBER_SIZE))
    parts += [*numbers, Markup('</g><g style="font-size: {}px; fill: currentColor">').format(FONT_SIZE)]
    parts.append(write_text(x, (LEFT + RIGHT) / 2, BOTTOM + 24.1, "middle"))
    beside = LEFT - LABEL_GAP - 4 - DIGIT_WIDTH * max((len(text) for _, text in up.ticks), default=0)
    parts.append(write_text(y, max(beside, FONT_SIZE), (TOP + BOTTOM) / 2, "middle", upright=True))
    return Markup("").join([*parts, Markup("</g></svg>")])


def write_series(series: Series, x: np.ndarray, y: np.ndarray) -> Markup:
    """Write a series at these positions in the panel; it is clear of the axes' ends, so nothing is cut."""
    points = zip(x.tolist(), y.tolist(), strict=True)
    if series.marker:
        shape = MARKER_SHAPES[series.marker]
        paths = "".join(f'<path d="M{a:.2f} {b:.2f}{shape}"/>' for a, b in points if math.isfinite(a + b))
        return Markup(f'<g style="fill: {series.colour}; fill-opacity: {series.opacity:g}">{paths}</g>')
    steps, pen = [], "M"
    for a, b in points:
        if math.isfinite(a + b):
            steps.append(f"{pen}{a:.2f} {b:.2f}")
        pen = "L" if math.isfinite(a + b) else "M"
    style = f"fill: none; stroke: {series.colour}; stroke-width: {series.width:g}"
    style += f"; stroke-opacity: {series.opacity:g}" if series.opacity < 1 else ""
    style += f"; stroke-dasharray: {series.dashes}" if series.dashes else "; stroke-linecap: square"
    return Markup(f'<path d="{"".join(steps)}" style="{style}"/>')


def write_outliers(series: Sequence[Series], across: Axis, up: Axis) -> list[Markup]:
    """Draw an arrow at each end of an axis that values lie beyond, and write the farthest of them beside it."""
    x, y = (np.concatenate([getattr(own, name) for own in series]) for name in "xy")
    usable = np.isfinite(x) & np.isfinite(y)
    x, y = x[usable], y[usable]
    texts = []
    for axis, values, arrows in ((across, x, "◀▶"), (up, y, "▼▲")):
        shares = axis.find_shares(values)
        for end, arrow in enumerate(arrows):
            far = int(shares.argmax() if end else shares.argmin())
            if 0 <= shares[far] <= 1:
                continue
            column, row = (float(one.place_inside(own[[far]])[0]) for one, own in ((across, x), (up, y)))
            value = f"{values[far]:.3g}".replace("-", "\N{MINUS SIGN}")
            is_right = column > (LEFT + RIGHT) / 2
            label = f"{value} {arrow}" if is_right else f"{arrow} {value}"
            height = row + 2.5 if axis is across else row - 2 if not end else row + 5.5
            edge = 0 if axis is across else 2.5 if is_right else -2.5  # an arrow up or down stands at its point
            texts.append(write_text(label, column + edge, height, "end" if is_right else "start"))
    return texts


def write_text(text: str, x: float, y: float, anchor: str, upright: bool = False) -> Markup:
    """Write a text whose start, middle or end is at a point, or nothing if it is empty; ``upright``: upwards."""
    if not text:
        return Markup("")
    turn = Markup(f' transform="rotate(-90 {x:.2f} {y:.2f})"') if upright else ""
    place = f'x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"'
    return Markup("<text {}{}>{}</text>").format(Markup(place), turn, text)
