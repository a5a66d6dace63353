"""Draw the report page's figures: curves over training, and isotropy against score, in small panels.

Names of methods and tasks are in the HTML around a panel, which a narrow screen can stack.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from markupsafe import Markup

from isobench.report.baseline_comparison import BASE_METHOD
from isobench.report.correlations import Points
from isobench.report.panels import MARKER_SHAPES, Series, draw_panel

T = TypeVar("T")
COLOURS = 7  # of the page: its CSS variables --m0, --m1, ...
DASHES = {"-": "", "--": "5.55 2.4", "-.": "9.6 2.4 1.5 2.4", ":": "1.5 2.475"}  # line style -> SVG's notation
MAX_RUNS_DRAWN, MAX_POINTS_DRAWN = 10, 600  # runs of a method in a panel of curves, points in a scatter plot


@dataclass(frozen=True)
class MethodStyle:
    """How a method is drawn everywhere on the page.

    Attributes:
        index: the method's number; -1 is plain fine-tuning, which has the colour of the text.
    """

    index: int

    @property
    def css(self) -> str:
        """The colour for the page, in CSS."""
        return "currentColor" if self.index < 0 else f"var(--m{self.index % COLOURS})"

    @property
    def dash(self) -> str:
        """The line style, in matplotlib's notation."""
        return list(DASHES)[self.style_index % len(DASHES)]

    @property
    def marker(self) -> str:
        """The marker, in matplotlib's notation."""
        return list(MARKER_SHAPES)[self.style_index % len(MARKER_SHAPES)]

    @property
    def style_index(self) -> int:
        """Which dash and marker to take: shifted by one in each round of colours, so that no pair repeats early."""
        if self.index < 0:
            return 0
        rounds, position = divmod(self.index, COLOURS)
        return 1 + position + rounds


def assign_styles(methods: Iterable[str]) -> dict[str, MethodStyle]:
    """Give every method a style; the same methods in the same order get the same styles."""
    names = list(dict.fromkeys(methods))
    others = [name for name in names if name != BASE_METHOD]
    plain = {BASE_METHOD: MethodStyle(-1)} if BASE_METHOD in names else {}
    return plain | {name: MethodStyle(index) for index, name in enumerate(others)}


def draw_curves(
    runs: Mapping[str, Sequence[np.ndarray]],
    epochs: np.ndarray,
    values: np.ndarray,
    styles: dict[str, MethodStyle],
    description: str,
) -> Markup | None:
    """Draw a measure against the epoch: a thin line for each run, a thick one for each method's mean.

    The mean at an epoch is over the runs that have reached it. Returns None unless a run has numbers at two epochs.

    Args:
        runs: method -> one array for each of its runs, with the indices of the run's epochs in ``values``.
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
    if not any(len(np.unique(epochs[run])) > 1 for own in lines.values() for run in own):
        return None

    thin, thick = [], []
    for method, own in lines.items():
        drawn = [run[np.lexsort((values[run], epochs[run]))] for run in subsample_evenly(own, MAX_RUNS_DRAWN)]
        x, y = (np.concatenate([np.append(column[run], np.nan) for run in drawn]) for column in (epochs, values))
        thin.append(Series(x, y, styles[method].css, width=0.6, opacity=0.45))
        joined = np.concatenate(own)
        xs = np.unique(epochs[joined])
        means = np.array([values[joined[epochs[joined] == x]].mean() for x in xs])
        marker = styles[method].marker if len(xs) == 1 else ""  # a line of one epoch can't be seen
        thick.append(Series(xs, means, styles[method].css, marker, dashes=DASHES[styles[method].dash]))
    return draw_panel([*thin, *thick], "epoch", "", description, integers=True)


def draw_scatter(points: Points, styles: dict[str, MethodStyle], x: str, y: str, description: str) -> Markup | None:
    """Draw score against isotropy, a point for each run; None without points."""
    if len(points) == 0:
        return None
    drawn = points.select(np.array(subsample_evenly(range(len(points)), MAX_POINTS_DRAWN)))
    clouds = [(style, drawn.select(drawn.methods == method)) for method, style in styles.items()]
    series = [Series(own.x, own.y, style.css, style.marker, opacity=0.7) for style, own in clouds if len(own)]
    return draw_panel(series, x, y, description)


def subsample_evenly(items: Sequence[T], most: int) -> Sequence[T]:
    """Return at most ``most`` of the items, evenly spaced."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
