"""Draw the figures of the report's page: curves over training, and isotropy against score."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from markupsafe import Markup

from isobench.report import correlations, figures, page_data
from isobench.report.correlations import Correlation
from isobench.report.document import TidyColumns, TidyRows
from isobench.report.figures import MethodStyle
from isobench.report.page_data import ISOTROPY_COLUMNS

# At most: pairs of encoder and task with curves, those shown unfolded, runs of a method and points in a panel.
DRAWING_LIMITS = {"groups": 30, "open": 4, "runs": figures.MAX_RUNS_DRAWN, "points": figures.MAX_POINTS_DRAWN}


@dataclass
class Panel:
    """A small figure and its title."""

    title: str
    svg: Markup


@dataclass
class CurveGroup:
    """The panels of one encoder and task, and the methods that they show."""

    title: str
    panels: list[Panel]
    methods: list[str]


def draw_curve_groups(
    epochs: TidyColumns,
    groups: Mapping[tuple[Any, ...], list[int]],
    styles: dict[str, MethodStyle],
) -> Iterator[CurveGroup]:
    """Draw the curves over training of each encoder and task, of no more than ``DRAWING_LIMITS`` allow.

    ``groups``: (encoder, task) -> numbers of its rows in ``epochs``.
    """
    measures = {"score": "Score"} | {
        name: f"{symbol}, {matrix}" for name, (symbol, matrix) in ISOTROPY_COLUMNS.items()
    }
    numbers = {name: page_data.to_numbers(epochs[name]) for name in measures if name in epochs}
    numbers_of_epochs = page_data.to_numbers(page_data.get_column(epochs, "epoch"))
    methods, keys = (page_data.get_column(epochs, name) for name in ("method", "key"))
    for (encoder, task), indices in list(groups.items())[: DRAWING_LIMITS["groups"]]:
        title = f"{task}, {encoder}"
        runs: dict[str, dict[str, list[int]]] = {}
        for index in indices:
            runs.setdefault(str(methods[index]), {}).setdefault(keys[index], []).append(index)
        rows = {method: [np.array(own) for own in by_key.values()] for method, by_key in runs.items()}
        panels = []
        for name, values in numbers.items():
            description = f"{measures[name]} against the epoch: {title}"
            if svg := figures.draw_curves(rows, numbers_of_epochs, values, styles, description):
                panels.append(Panel(measures[name], svg))
        if panels:
            yield CurveGroup(title, panels, [method for method in styles if method in runs])


@dataclass
class IsotropySection:
    """Isotropy against score.

    Attributes:
        names: of the measures, as column titles.
        parts: title, panels and correlations of the points as measured, and less the means of encoder and task.
        methods: those that the panels show.
        most_points: the number of points of the measure that has most.
    """

    names: list[str]
    parts: list[tuple[str, list[Panel], dict[str, list[Correlation]]]]
    methods: list[str]
    most_points: int

    @classmethod
    def draw(cls, runs: TidyRows, styles: dict[str, MethodStyle]) -> Self:
        """Draw the section for the measures that any run has."""
        points = {name: own for name in ISOTROPY_COLUMNS if len(own := correlations.collect_points(runs, name))}
        with_score = [run for run in runs if page_data.to_finite_float(run.get("score")) is not None]
        kinds = {False: "As measured"}
        if len(page_data.group_rows(with_score, "encoder", "task")) > 1:
            kinds[True] = "Less the mean of each encoder and task"
        parts = []
        for centred, kind in kinds.items() if points else ():
            panels = []
            for name, measured in points.items():
                symbol, matrix = ISOTROPY_COLUMNS[name]
                drawn = measured.centre() if centred else measured
                labels = (f"{symbol} less mean", "score less mean") if centred else (symbol, "score")
                description = f"Score against {symbol} of the {matrix}, a point a run. {kind}."
                if svg := figures.draw_scatter(drawn, styles, *labels, description):
                    panels.append(Panel(f"{symbol}, {matrix}", svg))
            methods = page_data.list_distinct_values(with_score, "method")
            parts.append((kind, panels, correlations.compute_correlations(list(points.values()), methods, centred)))
        drawn_methods = {method for own in points.values() for method in own.methods}
        names = [", ".join(ISOTROPY_COLUMNS[name]) for name in points]
        most = max(map(len, points.values()), default=0)
        return cls(names, parts, [method for method in styles if method in drawn_methods], most)
