"""Derive from tidy rows and cells what the report's page shows: groups, overheads, positions of the seeds."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isobench.report.baseline_comparison import BASE_METHOD
from isobench.report.document import Cell, Report, TidyColumns, TidyRows
from isobench.runs.grouping import PROTOCOL_SETTINGS, SOURCE_SETTINGS

COMPARABLE_VERDICTS = ("within", "above", "below")  # verdicts of cells that can be compared with the published one
NUMBER_PATTERN = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# Isotropy columns of the tidy rows -> symbol and the matrix that it is measured on, in the page's order.
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
    """Return a finite number as float; None for anything else, NaN and infinities included."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return None
    return float(value) if math.isfinite(value) else None


def to_numbers(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Return finite numbers as floats, and NaN for anything else. [len(values)]"""
    if not isinstance(values, np.ndarray):
        kinds = (float, int, np.number)
        values = [x if isinstance(x, kinds) and not isinstance(x, bool) else math.nan for x in values]
    array = np.array(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, np.nan)


def add_part_to_encoder(report: Report) -> Report:
    """Return the report with each run's scale and protocol behind its encoder's name, as far as they differ.

    Runs of different scales or protocols, such as heads, are compared nowhere (`isobench.report.parts`). The page
    groups runs by encoder, so that this keeps them apart there too.
    """
    names = ("scale", *PROTOCOL_SETTINGS, *SOURCE_SETTINGS)
    differing = [name for name in names if len({run.get(name) for run in report.runs}) > 1]
    if not differing:
        return report

    def describe(run: Mapping[str, Any]) -> str:
        words = {name: f"{name}={run.get(name)}" for name in differing}
        if "scale" in words:
            words["scale"] = f"scale {run.get('scale') or 'of the paper'}"
        return "; ".join(words.values())

    parts = {run.get("key"): describe(run) for run in report.runs}
    runs = [{**run, "encoder": f"{run.get('encoder')} ({parts[run.get('key')]})"} for run in report.runs]
    pairs = zip(get_column(report.epochs, "encoder"), get_column(report.epochs, "key"), strict=True)
    encoders = [f"{encoder} ({parts.get(key)})" for encoder, key in pairs]
    return replace(report, runs=runs, epochs=report.epochs | {"encoder": encoders})


def get_column(columns: TidyColumns, name: str) -> Sequence[Any] | np.ndarray:
    """Return a column's values; None for each row if there is no such column."""
    return columns[name] if name in columns else [None] * len(next(iter(columns.values()), []))


def group_indices(columns: TidyColumns, *names: str) -> dict[tuple[Any, ...], list[int]]:
    """Group the numbers of the rows by their values in the named columns, in order of appearance."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, values in enumerate(zip(*(get_column(columns, name) for name in names), strict=True)):
        groups.setdefault(values, []).append(index)
    return groups


def list_distinct_values(rows: TidyRows, name: str) -> list[str]:
    """Return the different values of a column, in order of appearance, without missing ones."""
    return list(dict.fromkeys(str(row[name]) for row in rows if row.get(name) is not None))


def group_rows(rows: TidyRows, *columns: str) -> dict[tuple[Any, ...], TidyRows]:
    """Group rows by their values in the columns, in order of appearance; a missing value is None."""
    groups: dict[tuple[Any, ...], TidyRows] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(column) for column in columns), []).append(row)
    return groups


@dataclass(frozen=True)
class Overhead:
    """Time and memory of a method, and their ratios to plain fine-tuning's; None where nothing was measured.

    Attributes:
        seconds: training seconds per epoch, of the fastest seed.
        memory: peak memory in MiB, of the seed that took most.
        seconds_ratio: seconds over plain fine-tuning's.
        memory_ratio: memory over plain fine-tuning's.
    """

    seconds: float | None
    memory: float | None
    seconds_ratio: float | None = None
    memory_ratio: float | None = None


def compute_overheads(runs: TidyRows) -> dict[tuple[str, str], dict[str, Overhead]]:
    """Compute time and memory: (encoder, method) -> task -> overhead, without runs that have neither."""
    costs = {key: compute_cost(group) for key, group in group_rows(runs, "encoder", "method", "task").items()}
    overheads: dict[tuple[str, str], dict[str, Overhead]] = {}
    for (encoder, method, task), own in costs.items():
        base = costs.get((encoder, BASE_METHOD, task))
        if own.seconds is None and own.memory is None:
            continue
        if base and method != BASE_METHOD:
            ratios = (compute_ratio(own.seconds, base.seconds), compute_ratio(own.memory, base.memory))
            own = Overhead(own.seconds, own.memory, *ratios)
        overheads.setdefault((str(encoder), str(method)), {})[str(task)] = own
    return overheads


def compute_cost(runs: TidyRows) -> Overhead:
    """Return time and memory of the runs of one encoder, method and task, without ratios."""
    pairs = [(to_finite_float(run.get("training_seconds")), to_finite_float(run.get("epochs"))) for run in runs]
    seconds = [seconds / epochs for seconds, epochs in pairs if seconds is not None and epochs]
    memory = [mib for run in runs if (mib := to_finite_float(run.get("peak_memory_mib"))) is not None]
    return Overhead(min(seconds, default=None), max(memory, default=None))


def compute_ratio(ours: float | None, base: float | None) -> float | None:
    """Return ours divided by the base's; None if either is missing or the base's is zero."""
    return ours / base if ours is not None and base else None


@dataclass(frozen=True)
class StripPlot:
    """One cell's seeds on its column's axis.

    Attributes:
        dots: positions of the seeds' values, from 0 (low end of the axis) to 100.
        published: position of the published value; None if ours can't be compared with it.
        words: the same in words, for readers who can't see the plot.
        undefined: how many seeds have a value that is not a finite number.
    """

    dots: list[float]
    published: float | None
    words: str
    undefined: int


@dataclass(frozen=True)
class Axis:
    """The range that a column's strip plots share, in the column's unit."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return a value's position: 0 at the low end, 100 at the high end, 50 if both ends are equal."""
        return 50.0 if self.high <= self.low else 100 * (value - self.low) / (self.high - self.low)


def build_axis(cells: Sequence[Cell]) -> Axis | None:
    """Make the axis from the smallest to the largest value of some cells and their comparable published values.

    Returns None if there is no value.
    """
    values = [
        value
        for cell in cells
        for value in [*list_finite_values(cell), parse_published_number(cell)]
        if value is not None
    ]
    return Axis(min(values), max(values)) if values else None


def build_strip_plot(cell: Cell, axis: Axis) -> StripPlot:
    """Place a cell's seeds on its column's axis."""
    seeds = [*cell.seeds, *["?"] * (len(cell.values) - len(cell.seeds))]
    values = ["undefined" if to_finite_float(value) is None else f"{value:.4g}" for value in cell.values]
    words = [f"seed {seed}: {value}" for seed, value in zip(seeds, values, strict=False)]
    published = parse_published_number(cell)
    if published is not None:
        words.append(f"published: {published:.4g}")
    dots = [axis.place(value) for value in list_finite_values(cell)]
    position = None if published is None else axis.place(published)
    return StripPlot(dots, position, ", ".join(words), len(cell.values) - len(dots))


def list_finite_values(cell: Cell) -> list[float]:
    """Return the cell's finite values."""
    return [float(value) for value in cell.values if to_finite_float(value) is not None]


def parse_published_number(cell: Cell) -> float | None:
    """Return the first number of the published cell; None if ours can't be compared with it."""
    number = NUMBER_PATTERN.search(cell.published or "") if cell.verdict in COMPARABLE_VERDICTS else None
    return float(number.group()) if number else None
