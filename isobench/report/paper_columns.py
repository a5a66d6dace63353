"""The columns of a paper's table: what one shows of a run, and which ones the tasks that ran have."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from isobench.config.schema import Task
from isobench.papers.published import PublishedTable
from isobench.runs.row import Row

ColumnKind = tuple[str | None, str | None]  # of a column: its isotropy and its time
SCORE_KIND: ColumnKind = (None, None)


@dataclass(frozen=True)
class Column:
    """One printed column: a task's metric on a dev split, an isotropy of the reported epoch, or the time of an epoch.

    ``isotropy``: its name in the records. ``time``: the unit, ``minutes``.
    """

    title: str
    task: str
    metrics: tuple[str, ...] = ()  # what the column may be, where the paper does not say
    split: str | None = None
    isotropy: str | None = None
    time: str | None = None

    @property
    def is_score(self) -> bool:
        """True for a metric: only scores are percentages and are compared with plain fine-tuning's."""
        return self.isotropy is None and self.time is None

    def value(self, row: Row) -> float | None:
        """A run's number, in percent where it is a score; NaN where undefined, None if the run has none."""
        if row.record is None or row.record.failure or row.record.best is None:
            return None
        if self.time:
            seconds = compute_epoch_seconds([row])
            return None if seconds is None else seconds / 60
        best = row.record.best
        if self.isotropy:
            number = best.isotropy.get(self.isotropy)
        else:
            primary = row.cfg.task.primary
            scores = best.metrics(self.split or row.cfg.task.dev_splits[0])
            number = scores.get(primary if primary in self.metrics else self.metrics[0])
        return math.nan if number is None else (100 if self.is_score else 1) * float(number)

    def text(self, number: float | None) -> str | None:
        """A number as printed: two decimals of a percentage, three of an isotropy, or a power if that is tiny.

        Of minutes as many as tell two times apart: 246, 17.2, 0.31.
        """
        if number is None or math.isnan(number):
            return None if number is None else "NaN"
        if self.is_score:
            return f"{number:.2f}"
        if self.time:
            return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f}"
        return f"{number:.3f}" if number == 0 or abs(number) >= 1e-3 else f"{number:.0e}"


def build_paper_columns(content: PublishedTable, tasks: dict[str, Task]) -> Iterator[Column]:
    """The paper's columns for the tasks that ran."""
    for title, what in content.columns.items():
        metric = what.metric or []
        task = tasks.get(what.task)
        has = [name for name in ([metric] if isinstance(metric, str) else metric) if task and name in task.metrics]
        if task and (has or what.metric is None):
            yield Column(title, task.name, tuple(has), what.split, what.isotropy, what.time)


def build_foreign_columns(foreign: list[Task], kinds: list[ColumnKind]) -> Iterator[Column]:
    """Columns of the same kinds for tasks that the paper doesn't have."""
    for task in foreign:
        for isotropy, time in kinds:
            title = f"{task.name} {isotropy or time or task.primary}"
            yield Column(title, task.name, (task.primary,), None, isotropy, time)


def compute_epoch_seconds(rows: list[Row]) -> float | None:
    """Training seconds of an epoch, of the fastest seed: what else the machine did counts least; None without any."""
    records = [row.record for row in rows if row.record and row.record.history]
    seconds = [record.cost.training_seconds / len(record.history) for record in records]
    return min(seconds, default=None)
