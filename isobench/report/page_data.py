"""What a report's page derives from tidy rows and cells: correlations, overheads, where the seeds stand."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isobench.report.baseline_comparison import BASE_METHOD
from isobench.report.document import Cell, Report, ReportTable, TidyRows

COMPARABLE_VERDICTS = ("within", "above", "below")  # verdicts that set our cell against the published one
NUMBER_PATTERN = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# Isotropy columns of the tidy rows -> symbol and matrix, in the page's order.
ISOTROPY_COLUMNS = {
    "embedding/ev1": ("EV₁", "embeddings"),
    "embedding/ev2": ("EV₂", "embeddings"),
    "embedding/ev3": ("EV₃", "embeddings"),
    "embedding/i1": ("I₁", "embeddings"),
    "embedding/i2": ("I₂", "embeddings"),
    "head/i1": ("I₁", "head"),
    "head/i2": ("I₂", "head"),
}


def to_finite_float(value: Any) -> float | None:
    """A finite number as float; None for None, NaN, infinities and what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return None
    return float(value) if math.isfinite(value) else None


def add_scale_to_encoder(report: Report) -> Report:
    """The same report; where its runs are of several scales, tidy rows name theirs behind the encoder."""
    scales = {run.get("key"): run.get("scale") for run in report.runs}
    if len(set(scales.values())) < 2:
        return report

    def named(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "encoder": f"{row.get('encoder')} (scale {scales.get(row.get('key'))})"}

    return replace(report, runs=[named(row) for row in report.runs], epochs=[named(row) for row in report.epochs])


def group_rows(rows: TidyRows, *columns: str) -> dict[tuple[Any, ...], TidyRows]:
    """Rows by their values of the columns, in order of appearance."""
    found: dict[tuple[Any, ...], TidyRows] = {}
    for row in rows:
        found.setdefault(tuple(row.get(column) for column in columns), []).append(row)
    return found


@dataclass(frozen=True)
class Point:
    """A run's isotropy and score."""

    method: str
    x: float
    y: float


def collect_points(runs: TidyRows, measure: str, centred: bool = False) -> list[Point]:
    """One a run that has both numbers.

    ``centred``: less the mean over these runs of the same encoder and task; those that are alone there are left out.
    """
    found = []
    for group in group_rows(runs, "encoder", "task").values():
        pairs = [
            (str(run.get("method")), to_finite_float(run.get(measure)), to_finite_float(run.get("score")))
            for run in group
        ]
        here = [Point(method, x, y) for method, x, y in pairs if x is not None and y is not None]
        if centred and here:
            x, y = (sum(values) / len(here) for values in zip(*((p.x, p.y) for p in here), strict=True))
            here = [Point(p.method, p.x - x, p.y - y) for p in here] if len(here) > 1 else []
        found += here
    return found


@dataclass(frozen=True)
class Correlation:
    """Spearman's; None where it is not defined: fewer than three points, or one value only."""

    rho: float | None
    n: int


def spearman(cloud: Sequence[Point]) -> Correlation:
    """Spearman's rank correlation of isotropy and score."""
    from scipy import stats  # slow to import

    xs, ys = [point.x for point in cloud], [point.y for point in cloud]
    if len(cloud) < 3 or len(set(xs)) < 2 or len(set(ys)) < 2:
        return Correlation(None, len(cloud))
    return Correlation(float(stats.spearmanr(xs, ys).statistic), len(cloud))


def compute_correlations(runs: TidyRows, measures: Sequence[str], centred: bool) -> dict[str, list[Correlation]]:
    """A line for all runs ("") and one a method; in it one correlation a measure."""
    methods = list(dict.fromkeys(str(run.get("method")) for run in runs))
    chosen = {"": runs} | {name: [run for run in runs if str(run.get("method")) == name] for name in methods}
    return {
        name: [spearman(collect_points(rows, measure, centred)) for measure in measures]
        for name, rows in chosen.items()
    }


@dataclass(frozen=True)
class Overhead:
    """Training seconds an epoch (of the fastest seed) and peak MiB (of the largest), and over those of ``BASE``."""

    seconds: float | None
    memory: float | None
    seconds_ratio: float | None = None
    memory_ratio: float | None = None


def compute_overheads(runs: TidyRows) -> dict[tuple[str, str], dict[str, Overhead]]:
    """Time and memory by encoder and method, then task: only of runs that have either."""
    costs = {key: compute_cost(group) for key, group in group_rows(runs, "encoder", "method", "task").items()}
    found: dict[tuple[str, str], dict[str, Overhead]] = {}
    for (encoder, method, task), own in costs.items():
        base = costs.get((encoder, BASE_METHOD, task))
        if own.seconds is None and own.memory is None:
            continue
        if base and method != BASE_METHOD:
            ratios = (ratio(own.seconds, base.seconds), ratio(own.memory, base.memory))
            own = Overhead(own.seconds, own.memory, *ratios)
        found.setdefault((str(encoder), str(method)), {})[str(task)] = own
    return found


def compute_cost(runs: TidyRows) -> Overhead:
    """What the runs of one encoder, method and task took."""
    pairs = [(to_finite_float(run.get("training_seconds")), to_finite_float(run.get("epochs"))) for run in runs]
    seconds = [seconds / epochs for seconds, epochs in pairs if seconds is not None and epochs]
    memory = [mib for run in runs if (mib := to_finite_float(run.get("peak_memory_mib"))) is not None]
    return Overhead(min(seconds, default=None), max(memory, default=None))


def ratio(ours: float | None, base: float | None) -> float | None:
    """Ours over the base's, None without either."""
    return ours / base if ours is not None and base else None


@dataclass(frozen=True)
class StripPlot:
    """One cell's seeds on its column's axis: places from 0 to 100, and the same in words."""

    dots: list[float]
    published: float | None
    words: str
    undefined: int


@dataclass(frozen=True)
class Axis:
    """What a column's strips span, in the column's unit."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """0 at the low end, 100 at the high one; the middle if they are the same."""
        return 50.0 if self.high <= self.low else 100 * (value - self.low) / (self.high - self.low)


def build_axis(table: ReportTable, column: str) -> Axis | None:
    """From the smallest to the largest value of a column, comparable published ones included; None without any."""
    cells = [line.cells[column] for line in table.lines if column in line.cells]
    values = [
        value
        for cell in cells
        for value in [*list_finite_values(cell), parse_published_number(cell)]
        if value is not None
    ]
    return Axis(min(values), max(values)) if values else None


def build_strip_plot(cell: Cell, axis: Axis) -> StripPlot:
    """A cell's seeds on its column's axis."""
    seeds = [*cell.seeds, *["?"] * (len(cell.values) - len(cell.seeds))]
    told = ["undefined" if to_finite_float(value) is None else f"{value:.4g}" for value in cell.values]
    words = [f"seed {seed}: {value}" for seed, value in zip(seeds, told, strict=False)]
    published = parse_published_number(cell)
    if published is not None:
        words.append(f"published: {published:.4g}")
    dots = [axis.place(value) for value in list_finite_values(cell)]
    place = None if published is None else axis.place(published)
    return StripPlot(dots, place, ", ".join(words), len(cell.values) - len(dots))


def list_finite_values(cell: Cell) -> list[float]:
    """The cell's values that are numbers."""
    return [float(value) for value in cell.values if to_finite_float(value) is not None]


def parse_published_number(cell: Cell) -> float | None:
    """The first number of the published cell, where ours may be set against it."""
    found = NUMBER_PATTERN.search(cell.published or "") if cell.verdict in COMPARABLE_VERDICTS else None
    return float(found.group()) if found else None
