"""A paper's table in its own form: methods by tasks, ours with the printed cell below, significance, time."""

import math
import statistics
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from isobench.config.schema import format_method_name
from isobench.papers import published
from isobench.papers.published import PublishedTable
from isobench.report.paper_columns import (
    Column,
    ColumnKind,
    build_foreign_columns,
    build_paper_columns,
    compute_epoch_seconds,
)
from isobench.report.seed_statistics import compute_cell_statistics, holm, welch
from isobench.runs.row import Row, are_constant_predictors, count_troubles

ALPHA = 0.05  # the papers' level
BASE_METHOD = "none"


class PaperTable:
    """One table of a paper with the runs of a sweep in it.

    Args:
        content: the table's part of published.yaml.
        columns: which columns to print.
        rows: the sweep's runs.
    """

    def __init__(self, content: PublishedTable, columns: list[Column], rows: list[Row]) -> None:
        self.content, self.columns = content, columns
        self.seeds: dict[tuple[str, str, str], list[Row]] = {}
        for row in rows:
            key = (row.cfg.encoder.name, format_method_name(row.cfg.calibration), row.cfg.task.name)
            self.seeds.setdefault(key, []).append(row)
        self.lines = list(dict.fromkeys((encoder, method) for encoder, method, _ in self.seeds))

    def runs(self, encoder: str, method: str, task: str) -> list[Row]:
        """One a seed; none where the method was not run on the task."""
        return self.seeds.get((encoder, method, task), [])

    def values(self, encoder: str, method: str, column: Column) -> list[float]:
        """The runs' numbers, one a seed that has one."""
        found = (column.value(row) for row in self.runs(encoder, method, column.task))
        return [value for value in found if value is not None]

    @cached_property
    def p_values(self) -> dict[tuple[str, str, Column], float]:
        """p of every score's difference from plain fine-tuning, where there is one to speak of."""
        found = {}
        for encoder, method in self.lines:
            for column in self.columns:
                both = [(encoder, name, column) for name in (method, BASE_METHOD)]
                if method != BASE_METHOD and column.is_score and not any(self.is_constant(*one) for one in both):
                    found[both[0]] = welch(*(self.values(*one) for one in both))
        return {key: p for key, p in found.items() if not math.isnan(p)}

    def is_constant(self, encoder: str, method: str, column: Column) -> bool:
        """True if no seed has learned to tell anything apart."""
        return are_constant_predictors(self.runs(encoder, method, column.task))

    def mark(self, encoder: str, method: str, column: Column) -> str:
        """* for significantly better than plain fine-tuning, † for worse."""
        if self.p_values.get((encoder, method, column), 1.0) >= ALPHA:
            return ""
        difference = statistics.fmean(self.values(encoder, method, column)) - statistics.fmean(
            self.values(encoder, BASE_METHOD, column)
        )
        return " *" if difference > 0 else " †"

    def summary(self, values: list[float]) -> list[float | None]:
        """The statistics of the paper's cells; None for a spread that one seed doesn't have."""
        found = zip(self.content.form, compute_cell_statistics(values, self.content.form), strict=True)
        return [None if name.endswith("sd") and len(values) == 1 else number for name, number in found]

    def format_cell(self, encoder: str, method: str, column: Column, marked: bool = True) -> str:
        """Ours: statistics over seeds with what went wrong in some, or its name if it went wrong in all."""
        rows = self.runs(encoder, method, column.task)
        wrong = count_troubles(rows)
        values = self.values(encoder, method, column)
        if not rows:
            return ""
        if not values:
            return ", ".join(wrong)
        numbers = published.format_statistics(self.content.form, [column.text(x) for x in self.summary(values)])
        if any(math.isnan(value) for value in values):
            numbers = "NaN"
        if column.is_score and self.is_constant(encoder, method, column):
            return f"constant ({numbers})"
        if not column.is_score:
            del wrong["constant_predictor"]
        notes = [f", {count} {name.replace('_predictor', '')}" for name, count in wrong.items()]
        return numbers + (self.mark(encoder, method, column) if marked else "") + "".join(notes)

    def format_published_cell(self, encoder: str, method: str, column: Column) -> str:
        """The paper's cell below ours; of another encoder, named, if the paper doesn't have this one."""
        found = published.find_cell_in_column(self.content, encoder, method, column.title)
        if found is None:
            return "not in the paper"
        cell, of = found
        return f"[{cell}]" if of == encoder else f"[{cell} {of}]"

    def time(self, encoder: str, method: str) -> str:
        """Training seconds an epoch over those of plain fine-tuning, the median over tasks and their range."""
        ratios = []
        seconds = 0.0
        for task in dict.fromkeys(column.task for column in self.columns):
            ours, base = (compute_epoch_seconds(self.runs(encoder, name, task)) for name in (method, BASE_METHOD))
            if ours and base:
                ratios.append(ours / base)
                seconds = ours
        if not ratios:
            return "-"
        text = f"{statistics.median(ratios):.2f}x"
        return f"{seconds:.1f} s, {text}" if len(ratios) == 1 else f"{text} ({min(ratios):.2f}-{max(ratios):.2f})"

    def notes(self, with_time: bool) -> list[str]:
        """What the marks mean, how many to expect from chance, what the times are."""
        found = []
        if tests := list(self.p_values.values()):
            survive = sum(p < ALPHA for p in holm(tests))
            found.append(
                f"* better, † worse than {BASE_METHOD}: p < {ALPHA}, Welch's t-test over seeds, not corrected; of "
                f"{len(tests)} comparisons {ALPHA * len(tests):.1f} are expected by chance; {survive} survive Holm."
            )
        if any(column.time for column in self.columns):
            found.append(
                "Minutes: of training an epoch, without evaluation; the paper's are of a machine of its own."
            )
        if with_time:
            found.append("Training time: the fastest seed's; it compares only if the machine had nothing else to do.")
        return found


def print_paper_tables(out: Console, experiment: Any, rows: list[Row]) -> None:
    """Print every table of the experiment's paper that its runs have columns of."""
    for number, (name, content, columns) in enumerate(list_paper_tables(experiment, rows)):
        if columns:
            table = PaperTable(content, columns, rows)
            title = f"{experiment.paper}, {name}: {published.format_statistics(content.form, content.form)}"
            for drawn in build_terminal_tables(table, title, out.width, with_time=number == 0):
                out.print(drawn)
            for note in table.notes(with_time=number == 0):
                out.print(note, highlight=False, markup=False)


def list_paper_tables(experiment: Any, rows: list[Row]) -> Iterator[tuple[str, PublishedTable, list[Column]]]:
    """Name, content and columns of every table of the experiment's paper; no columns where its runs have none.

    Tasks that are not the paper's stand in the first table with columns of a kind.
    """
    tasks = {row.cfg.task.name: row.cfg.task for row in rows}
    contents = {name: published.load_tables(experiment.paper)[name] for name in experiment.tables if experiment.paper}
    known = {what.task for content in contents.values() for what in content.columns.values()}
    foreign = [task for name, task in tasks.items() if name not in known]
    shown: set[ColumnKind] = set()  # kinds of columns in which tasks that are not the paper's have been shown
    for name, content in contents.items():
        kinds = dict.fromkeys((what.isotropy, what.time) for what in content.columns.values())
        yield (
            name,
            content,
            [
                *build_paper_columns(content, tasks),
                *build_foreign_columns(foreign, [k for k in kinds if k not in shown]),
            ],
        )
        shown |= set(kinds)


def build_terminal_tables(table: PaperTable, title: str, width: int, with_time: bool) -> Iterator[Table]:
    """The table, as several below one another if it is wider than the terminal."""
    columns = [
        [
            column.title,
            *(
                f"{table.format_cell(*line, column)}\n{table.format_published_cell(*line, column)}"
                for line in table.lines
            ),
        ]
        for column in table.columns
    ]
    if with_time:
        columns.append(["training time an epoch", *(table.time(*line) for line in table.lines)])
    label = compute_column_width([f"{method}\n{encoder}" for encoder, method in table.lines])
    while columns:
        count, used = 1, label + compute_column_width(columns[0])
        while count < len(columns) and used + compute_column_width(columns[count]) <= width:
            used += compute_column_width(columns[count])
            count += 1
        part = Table(title=title, title_justify="left", header_style="bold")
        part.add_column("")
        for header, *_ in columns[:count]:
            part.add_column(Text(header), justify="right", overflow="fold")
        for number, (encoder, method) in enumerate(table.lines, 1):
            part.add_row(Text(f"{method}\n{encoder}"), *(Text(column[number]) for column in columns[:count]))
        yield part
        title, columns = "", columns[count:]


def compute_column_width(texts: list[str]) -> int:
    """Characters that a column of these texts takes in a table, borders included."""
    return 3 + max(len(line) for text in texts for line in text.splitlines())
