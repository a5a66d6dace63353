"""The columns of a report's tables: those of a paper whose tasks ran, or one for each task."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from isobench.common.errors import UserError
from isobench.config.schema import Experiment, Task
from isobench.papers import published
from isobench.papers.published import PublishedTable
from isobench.report.tables import is_scored, read_numbers

ColumnKind = tuple[str | None, str | None]  # a published column's ``isotropy`` and ``time``; both None for a score
SCORE_KIND: ColumnKind = (None, None)
NO_PAPER = PublishedTable(what="", form=["mean", "sd"], cells={}, columns={}, methods={})


@dataclass(frozen=True)
class Column:
    """One printed column: a task's metric on a dev split, an isotropy of the reported epoch, or the time of an epoch.

    Attributes:
        title: its heading.
        task: whose runs it shows.
        kind: score (in percent), isotropy or time (in minutes).
        source: the column of ``runs`` that has its numbers; empty for a time.
        printed: the paper's name of the column; empty if the paper does not have it.
        difference: how the task differs from the paper's, in words; empty if it is the paper's.
    """

    title: str
    task: str
    kind: str
    source: str = ""
    printed: str = ""
    difference: str = ""

    def read_values(self, runs: pd.DataFrame) -> tuple[list[float], list[int]]:
        """Return the numbers of the runs that have one, NaN where it is undefined, and the seeds of these runs."""
        values = compute_epoch_seconds(runs) / 60 if self.kind == "time" else read_numbers(runs, self.source)
        has_number = np.isfinite(values) if self.kind == "time" else np.ones(len(runs), bool)
        kept = np.asarray(is_scored(runs), bool) & has_number
        return values[kept].tolist(), runs["seed"][kept].tolist()

    def format_value(self, number: float | None) -> str | None:
        """Write a number as the paper prints it.

        A percentage has two decimals; an isotropy three, or an exponent if it is tiny; minutes about three digits:
        246, 17.2, 0.31.
        """
        if number is None or math.isnan(number):
            return None if number is None else "NaN"
        if self.kind == "score":
            return f"{number:.2f}"
        if self.kind == "time":
            return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f}"
        return f"{number:.3f}" if number == 0 or abs(number) >= 1e-3 else f"{number:.0e}"


@dataclass(frozen=True)
class Table:
    """A table to fill: its name in published.yaml (empty without a paper), its content there, and its columns."""

    name: str
    content: PublishedTable
    columns: list[Column] = field(default_factory=list)

    @property
    def paper_columns(self) -> list[Column]:
        """The shown columns that the paper has too."""
        return [column for column in self.columns if column.printed]

    @property
    def has_average(self) -> bool:
        """True if the paper prints the average of each row and a column of this average is shown."""
        return bool(self.content.average and self.paper_columns)


def list_tables(experiment: Experiment, tasks: dict[str, Task]) -> list[Table]:
    """List the tables of the experiment's paper that have columns for these tasks; if none has, one of all scores.

    A task that the paper doesn't have gets a column of each kind (score, an isotropy, time) once: in the first table
    with columns of that kind.

    Args:
        experiment: its paper and tables.
        tasks: name -> task, of the tasks that ran.
    """
    contents = load_contents(experiment)
    columns_of_all = [column for content in contents.values() for column in content.columns.values()]
    paper_tasks = {task for column in columns_of_all for task in (column.task, *column.variants)}
    foreign = [task for name, task in tasks.items() if name not in paper_tasks]
    used_kinds: set[ColumnKind] = set()  # kinds of columns that the foreign tasks have already
    tables = []
    for name, content in contents.items():
        kinds = list(dict.fromkeys((column.isotropy, column.time) for column in content.columns.values()))
        new_kinds = [kind for kind in kinds if kind not in used_kinds]
        columns = [*_build_paper_columns(content, tasks), *_build_foreign_columns(foreign, new_kinds)]
        used_kinds |= set(kinds)
        if columns:
            tables.append(Table(name, content, columns))
    return tables or [Table("", NO_PAPER, list(_build_foreign_columns(list(tasks.values()), [SCORE_KIND])))]


def load_contents(experiment: Experiment) -> dict[str, PublishedTable]:
    """Load the tables of the experiment's paper that the experiment names.

    Raises:
        UserError: the paper, or a table of it, is not here.
    """
    if not experiment.paper:
        return {}
    tables = published.load_tables(experiment.paper)
    if missing := [name for name in experiment.tables if name not in tables]:
        paper = experiment.paper
        raise UserError(f"there is no {missing[0]} of the paper {paper} here: name its folder with --paper FOLDER")
    return {name: tables[name] for name in experiment.tables}


def find_content(experiment: Experiment, table: str) -> PublishedTable:
    """Return a table's content in published.yaml; that of a table without a paper if its name is empty."""
    return load_contents(experiment).get(table, NO_PAPER)


def _build_paper_columns(content: PublishedTable, tasks: dict[str, Task]) -> Iterator[Column]:
    """Make the columns of a paper's table whose tasks ran; each variant of a task has a column of its own."""
    for printed, column in content.columns.items():
        names = column.metric if isinstance(column.metric, list) else [column.metric] if column.metric else []
        for name, difference in {column.task: "", **column.variants}.items():
            task = tasks.get(name)
            known = [metric for metric in names if task and metric in task.metrics]
            if task and (known or not names):
                # The paper may not say which of several metrics it prints: the task's primary one if it is possible.
                metric = task.primary if task.primary in known or not known else known[0]
                score = f"{column.split or task.dev_splits[0]}/{metric}"
                title = f"{printed} ({name})" if difference else printed
                kind = "isotropy" if column.isotropy else "time" if column.time else "score"
                source = "" if column.time else column.isotropy or score
                yield Column(title, name, kind, source, printed, difference)


def _build_foreign_columns(foreign: Sequence[Task], kinds: Sequence[ColumnKind]) -> Iterator[Column]:
    """Make columns of the given kinds for tasks that the paper doesn't have."""
    for task in foreign:
        for isotropy, time in kinds:
            kind = "isotropy" if isotropy else "time" if time else "score"
            source = "" if time else isotropy or f"{task.dev_splits[0]}/{task.primary}"
            yield Column(f"{task.name} {isotropy or time or task.primary}", task.name, kind, source)


def compute_epoch_seconds(runs: pd.DataFrame) -> np.ndarray:
    """Return each run's training seconds per epoch; NaN if no epoch was trained.

    The recorded time is up to the last evaluated epoch, so it is divided by that epoch's number.
    """
    epochs = read_numbers(runs, "epochs")
    return read_numbers(runs, "training_seconds") / np.where(epochs > 0, epochs, np.nan)


def find_fastest(runs: pd.DataFrame) -> float | None:
    """Return the training seconds per epoch of the fastest seed, which the machine's other work slowed least."""
    seconds = compute_epoch_seconds(runs)
    return float(np.nanmin(seconds)) if np.isfinite(seconds).any() else None
