"""Turn a paper's printed numbers into the report that runs with these numbers would give.

Claims are judged by it, to see that our criteria accept the papers' own tables, and reject broken ones.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from isobench.config.schema import Experiment, Task
from isobench.papers.published import PublishedColumn, PublishedTable, check_tables_exist, load_tables
from isobench.report.build import Report
from isobench.report.cells import build_cells
from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR, SPEED_SETTINGS
from isobench.runs.grouping import PROTOCOL_SETTINGS, SOURCE_SETTINGS

SPLIT = "validation"
SECONDS_PER_MINUTE = 60
CENTRES = ("mean", "median", "value")  # statistics that say where a cell's values lie
# What a printed run shares with all others: columns of ``runs``.
SHARED: dict[str, Any] = dict.fromkeys([*PROTOCOL_SETTINGS, *SOURCE_SETTINGS, *SPEED_SETTINGS], "printed") | {
    "data": "printed", "weights": "printed", "share": 1,
    "status": "finished", "message": None, "split": SPLIT, "scale": "", "part": "", "selected": True, "candidates": 1,
    "threads": 1, "torch": "", "epochs": 1, "examples": 1,
}  # fmt: skip


class PrintedCell(NamedTuple):
    """A printed cell of a method, as one that breaks print gets it, with isobench's names."""

    encoder: str
    task: str
    method: str
    kind: str  # score, isotropy or time
    numbers: dict[str, Any]  # statistic (mean, sd, ...) -> the printed number
    plain: dict[str, Any]  # the same of plain fine-tuning's cell


Change = Callable[[PrintedCell], dict[str, Any]]  # returns the numbers that stand in the cell's place


def scale_effects(factor: float, *kinds: str) -> Change:
    """Make the change that multiplies each method's difference from plain fine-tuning: by 0 or -1, for example.

    With 0 the method's spread is plain fine-tuning's too: its values are drawn from plain's. ``kinds`` are those of
    the cells that change; none means all.
    """

    def change(cell: PrintedCell) -> dict[str, Any]:
        if (kinds and cell.kind not in kinds) or not cell.plain:  # it is plain's own, or plain's is not printed
            return cell.numbers
        if factor == 0:
            return dict(cell.plain)  # with its spread
        centre = next(name for name in CENTRES if name in cell.numbers)
        ours, plain = (numbers[centre] for numbers in (cell.numbers, cell.plain))
        if None in (ours, plain):
            return cell.numbers
        return cell.numbers | {centre: float(plain) + factor * (float(ours) - float(plain))}

    return change


def set_gain(points: Callable[[PrintedCell], float]) -> Change:
    """Make the change that sets each cell's mean or median to plain fine-tuning's plus ``points(cell)``.

    A cell for which plain fine-tuning's is not printed stays as it is.
    """

    def change(cell: PrintedCell) -> dict[str, Any]:
        centre = next(name for name in CENTRES if name in cell.numbers)
        plain = cell.plain.get(centre)
        return cell.numbers if plain is None else cell.numbers | {centre: float(plain) + points(cell)}

    return change


def only(change: Change, **names: Collection[str]) -> Change:
    """Make the change of those cells alone whose encoder, task, method or kind are among the names."""

    def change_some(cell: PrintedCell) -> dict[str, Any]:
        is_meant = all(getattr(cell, name) in wanted for name, wanted in names.items())
        return change(cell) if is_meant else cell.numbers

    return change_some


def collapse(cell: PrintedCell) -> dict[str, Any]:
    """Make a cell of runs that predict one class."""
    return dict.fromkeys(cell.numbers, 0)


def break_print(
    make: Callable[..., Report], breaks: Mapping[str, Change | Mapping[str, str]]
) -> dict[str, Callable[[], Report]]:
    """Make a claim's broken numbers of print, each with a change or with the methods ``rows`` that are renamed."""
    return {
        name: partial(make, **{"rows" if isinstance(own, Mapping) else "change": own}) for name, own in breaks.items()
    }


def build_printed_report(
    paper: str,
    tables: Sequence[str],
    seeds: int,
    encoders: Sequence[str] = (),
    change: Change | None = None,
    methods: Sequence[str] = (),
    rows: Mapping[str, str] | None = None,
    machine: str = "printed",
) -> Report:
    """Build a report of ``seeds`` runs for each row and task, whose numbers have the printed means and deviations.

    A printed median counts as the mean. Scores and isotropies of a cell are uncorrelated over its seeds. A score that
    is printed as NaN or as 0 is one of a run that predicts one class. No run has a seed, because print does not say
    which runs of two rows belong together; so they are not paired.

    A paper's claims.py names its paper by its folder, so that a copy of the folder works unchanged:

        make = partial(build_printed_report, Path(__file__).parent.name, ["table1"], 3)
        Claim(..., check=nothing_improves, printed=make, broken=break_print(make, {"tenfold": scale_effects(10)}))

    Args:
        seeds: how many runs a printed cell stands for.
        encoders, methods: those that are taken; none means all. Plain fine-tuning always is.
        change: breaks the cells of methods: see `scale_effects`.
        rows: method -> the method whose printed row it gets instead of its own, which breaks print too.
        machine: on which the paper measured its times.
    """
    check_tables_exist(paper, tables)
    contents = [load_tables(paper)[name] for name in tables]
    tasks = _make_tasks([column for content in contents for column in content.columns.values()])
    records: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for content in contents:
        of_methods = [name for name in content.methods if not methods or name in (*methods, BASE_METHOD)]
        of_encoders = [name for name in content.cells if not encoders or name in encoders]
        for encoder, method in product(of_encoders, of_methods):
            for column, numbers in _list_printed(content, encoder, method, rows or {}, change):
                is_score = bool(column.metric)
                values = sample_cell(numbers, seeds, is_score)
                is_constant = np.isnan(values).all() or (is_score and not values.any())
                for seed, value in enumerate(values, 1):
                    record = records.setdefault((encoder, column.task, method, seed), {"failure": None})
                    record[_name_source(column)] = value * (SECONDS_PER_MINUTE if column.time else 1)
                    record["failure"] = CONSTANT_PREDICTOR if is_constant else record["failure"]
    runs = []
    for (encoder, task, method, seed), record in records.items():
        score = record.get(f"{SPLIT}/{tasks[task].primary}", math.nan)
        about = {"seed": None, "metric": tasks[task].primary, "score": 0.0 if math.isnan(score) else score}
        names = {"key": f"{encoder}-{task}-{method}-{seed}", "encoder": encoder, "task": task, "method": method}
        runs.append({**SHARED, **names, "machine": machine, **about, **record})
    table = pd.DataFrame(runs).astype(object)
    table = table.where(table.notna(), None)
    experiment = Experiment(name=paper, paper=paper, tables=list(tables))
    cells = build_cells(table, experiment, tasks, [])
    return Report(experiment, table, pd.DataFrame(), cells, pd.DataFrame())


def _make_tasks(columns: Sequence[PublishedColumn]) -> dict[str, Task]:
    """Make the tasks of printed columns, by name, with the metrics and dev splits that are printed."""
    tasks: dict[str, Task] = {}
    for column in columns:
        task = tasks.setdefault(column.task, Task(name=column.task, metrics=[], primary="", dev_splits=[SPLIT]))
        metric, split = _name_metric(column), column.split or SPLIT
        task.metrics += [metric] if metric and metric not in task.metrics else []
        task.dev_splits += [split] if split not in task.dev_splits else []
        task.primary = task.metrics[0] if task.metrics else ""
    return tasks


def _list_printed(
    content: PublishedTable, encoder: str, method: str, rows: Mapping[str, str], change: Change | None
) -> Iterator[tuple[PublishedColumn, dict[str, Any]]]:
    """Yield a method's printed columns and numbers; ``change`` breaks the numbers, and ``rows`` renames methods."""
    printed_rows = content.cells[encoder]  # row -> column -> printed numbers, in the order of content.form
    names = [content.methods.get(rows.get(name, name), "") for name in (method, BASE_METHOD)]
    own, base = (printed_rows.get(name, {}) for name in names)
    for title, printed in own.items():
        column, numbers = content.columns[title], dict(zip(content.form, printed, strict=True))
        if change and method != BASE_METHOD:
            plain = dict(zip(content.form, base[title], strict=True)) if title in base else {}
            numbers = change(PrintedCell(encoder, column.task, method, column.kind, numbers, plain))
        yield column, numbers


def sample_cell(numbers: dict[str, Any], seeds: int, is_score: bool) -> np.ndarray:
    """Make values with a cell's printed mean (or median) and deviation; a lone median gets the printed maximum.

    ``seeds`` is at least two. Values with ``is_score`` False are uncorrelated with those that True gives: print
    does not say how they go together within a cell.
    """
    steps = np.linspace(-1, 1, seeds)
    steps = steps if is_score else steps**2 - np.mean(steps**2)
    steps = steps / steps.std(ddof=1)
    centre = next((numbers[name] for name in CENTRES if numbers.get(name) is not None), math.nan)
    spread = find_printed_sd(numbers, seeds)
    if spread is None:
        spread = (numbers.get("max", centre) - centre) / steps.max()
    return float(centre) + float(spread) * steps


def find_printed_sd(numbers: dict[str, Any], seeds: int) -> float | None:
    """Return a cell's printed standard deviation, divided by n - 1 whichever is printed; None if neither is."""
    if numbers.get("population_sd") is not None:
        return float(numbers["population_sd"]) * math.sqrt(seeds / (seeds - 1))
    return numbers.get("sd")


def _name_metric(column: PublishedColumn) -> str:
    return next(iter(column.metrics), "")


def _name_source(column: PublishedColumn) -> str:
    """Return the column of ``runs`` that a printed column's numbers go into."""
    if column.time:
        return "training_seconds"
    return column.isotropy or f"{column.split or SPLIT}/{_name_metric(column)}"
