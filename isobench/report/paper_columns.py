"""The columns of a paper's table: what each shows of a run, and which of them the tasks that ran have."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from isobench.config.schema import Task
from isobench.papers.published import PublishedTable
from isobench.runs.row import Row

ColumnKind = tuple[str | None, str | None]  # a column's ``isotropy`` and ``time``; both None for a score
SCORE_KIND: ColumnKind = (None, None)


@dataclass(frozen=True)
class Column:
    """One printed column: a task's metric on a dev split, an isotropy of the reported epoch, or the time of an epoch.

    Attributes:
        title: as printed in the paper.
        task: whose runs it shows.
        metrics: names of the metric; several if the paper does not say which of them it prints.
        split: the dev split; None for the task's first.
        isotropy: the isotropy's name in the records; None if the column shows none.
        time: the unit, ``minutes``; None if the column shows no time.
        printed: the paper's name of the column, if ``title`` is another one.
        difference: how the task differs from the paper's, in words; empty if it is the paper's.
    """

    title: str
    task: str
    metrics: tuple[str, ...] = ()
    split: str | None = None
    isotropy: str | None = None
    time: str | None = None
    printed: str = ""
    difference: str = ""

    @property
    def published_name(self) -> str:
        """The paper's name of the column."""
        return self.printed or self.title

    @property
    def is_score(self) -> bool:
        """True for a metric: only scores are percentages, and only they are compared with plain fine-tuning's."""
        return self.isotropy is None and self.time is None

    def read_value(self, row: Row) -> float | None:
        """Read a run's number, in percent if it is a score; NaN if undefined, None if the run has none."""
        if row.record is None or row.record.failure or row.record.best is None:
            return None
        if self.time:
            seconds = compute_epoch_seconds([row])
            return None if seconds is None else seconds / 60
        best = row.record.best
        if self.isotropy:
            number = best.isotropy.get(self.isotropy)
        else:
            scores = best.metrics(self.split or row.cfg.task.dev_splits[0])
            number = scores.get(self.find_metric(row.cfg.task))
        return math.nan if number is None else (100 if self.is_score else 1) * float(number)

    def find_metric(self, task: Task) -> str:
        """Return the metric that the column of scores shows: the task's primary one if it is among the printed."""
        return task.primary if task.primary in self.metrics else self.metrics[0]

    def format_value(self, number: float | None) -> str | None:
        """Write a number as the paper prints it.

        A percentage has two decimals; an isotropy three, or an exponent if it is tiny; minutes about three digits:
        246, 17.2, 0.31.
        """
        if number is None or math.isnan(number):
            return None if number is None else "NaN"
        if self.is_score:
            return f"{number:.2f}"
        if self.time:
            return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f}"
        return f"{number:.3f}" if number == 0 or abs(number) >= 1e-3 else f"{number:.0e}"


def build_paper_columns(content: PublishedTable, tasks: dict[str, Task]) -> Iterator[Column]:
    """Make the columns of a paper's table whose tasks ran; each variant of a task has a column of its own.

    Args:
        content: the table's part of published.yaml.
        tasks: name -> task, of the tasks that ran.
    """
    for title, column in content.columns.items():
        printed = column.metric or []
        metrics = [printed] if isinstance(printed, str) else printed
        for name, difference in {column.task: "", **column.variants}.items():
            task = tasks.get(name)
            known = tuple(metric for metric in metrics if task and metric in task.metrics)
            if task and (known or column.metric is None):
                shown = f"{title} ({name})" if difference else title
                parts = (shown, name, known, column.split, column.isotropy, column.time)
                yield Column(*parts, printed=title, difference=difference)


def build_foreign_columns(foreign: list[Task], kinds: list[ColumnKind]) -> Iterator[Column]:
    """Make columns of the given kinds for tasks that the paper doesn't have."""
    for task in foreign:
        for isotropy, time in kinds:
            title = f"{task.name} {isotropy or time or task.primary}"
            yield Column(title, task.name, (task.primary,), None, isotropy, time)


def compute_epoch_seconds(rows: list[Row]) -> float | None:
    """Return the training seconds per epoch of the fastest seed, which the machine's other work slowed least.

    The recorded time is up to the last evaluated epoch, so it is divided by that epoch's number. None if no run has
    an epoch.
    """
    records = [row.record for row in rows if row.record and row.record.history]
    seconds = [record.cost.training_seconds / record.history[-1].epoch for record in records]
    return min(seconds, default=None)
