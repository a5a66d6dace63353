"""A paper's table in its own form: methods by tasks, our numbers with marks and times, the published cells below."""

import math
import statistics
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from isobench.common.terminal import format_count
from isobench.papers import published
from isobench.papers.published import PublishedTable
from isobench.report.baseline_comparison import BASE_METHOD, CONSTANT_PREDICTOR, choose_mark, format_mark_legend
from isobench.report.paper_columns import (
    Column,
    ColumnKind,
    build_foreign_columns,
    build_paper_columns,
    compute_epoch_seconds,
)
from isobench.runs.grouping import read_run_names
from isobench.runs.row import Row, are_constant_predictors, count_troubles
from isobench.statistics.seeds import ALPHA, compute_cell_statistics, holm, student, welch

CellKey = tuple[str, str, Column]  # encoder, method, column
AVERAGE = "Avg"  # title of the column of each row's average


class PaperTable:
    """One table of a paper, filled with the runs of a sweep.

    A line of the table is an (encoder, method).

    Args:
        content: the table's part of published.yaml.
        columns: which columns to print.
        rows: the sweep's runs.
    """

    def __init__(self, content: PublishedTable, columns: list[Column], rows: list[Row]) -> None:
        self.content, self.columns = content, columns
        self.runs_by_key: dict[tuple[str, str, str], list[Row]] = {}
        for row in rows:
            task, encoder, method = read_run_names(row.cfg)
            self.runs_by_key.setdefault((encoder, method, task), []).append(row)
        self.lines = list(dict.fromkeys((encoder, method) for encoder, method, _ in self.runs_by_key))

    def find_runs(self, encoder: str, method: str, task: str) -> list[Row]:
        """Return the runs of a method on a task, one for each seed; empty if there are none."""
        return self.runs_by_key.get((encoder, method, task), [])

    def read_values(self, encoder: str, method: str, column: Column) -> list[float]:
        """Return the runs' numbers in a column, one for each seed that has one."""
        values = (column.read_value(row) for row in self.find_runs(encoder, method, column.task))
        return [value for value in values if value is not None]

    @cached_property
    def p_values(self) -> dict[CellKey, float]:
        """The p of each score's difference from plain fine-tuning's, by the test that the marks come from."""
        return self.test_differences(student if self.content.marks == "student" else welch)

    def test_differences(self, test: Callable[[list[float], list[float]], float]) -> dict[CellKey, float]:
        """Test each score against plain fine-tuning's; none has a p that is undefined or of a constant predictor."""
        p_values = {}
        for encoder, method in self.lines:
            for column in self.columns:
                if self.is_compared(encoder, method, column):
                    values = (self.read_values(encoder, name, column) for name in (method, BASE_METHOD))
                    p_values[encoder, method, column] = test(*values)
        return {cell: p for cell, p in p_values.items() if not math.isnan(p)}

    def is_compared(self, encoder: str, method: str, column: Column) -> bool:
        """Return True for a method's score if no run of it, or of plain fine-tuning, is a constant predictor."""
        rows = [row for name in (method, BASE_METHOD) for row in self.find_runs(encoder, name, column.task)]
        return method != BASE_METHOD and column.is_score and CONSTANT_PREDICTOR not in count_troubles(rows)

    def format_mark(self, encoder: str, method: str, column: Column) -> str:
        """Return * if significantly better than plain fine-tuning, † if worse, else nothing."""
        if (encoder, method, column) not in self.p_values:
            return ""
        ours, base = (statistics.fmean(self.read_values(encoder, name, column)) for name in (method, BASE_METHOD))
        return choose_mark(self.p_values[encoder, method, column], ours - base)

    def summarize_values(self, values: list[float]) -> list[float | None]:
        """Compute the statistics that the paper's cells print; None for the spread of a single seed."""
        form = self.content.form
        numbers = zip(form, compute_cell_statistics(values, form), strict=True)
        return [None if name.endswith("sd") and len(values) == 1 else number for name, number in numbers]

    def format_cell(self, encoder: str, method: str, column: Column, marked: bool = True) -> str:
        """Write our cell: statistics over seeds, a mark if ``marked``, and what went wrong in how many runs."""
        rows = self.find_runs(encoder, method, column.task)
        troubles = count_troubles(rows)
        values = self.read_values(encoder, method, column)
        if not rows:
            return ""
        if not values:
            return ", ".join(troubles)
        numbers = published.format_statistics(
            self.content.form, [column.format_value(x) for x in self.summarize_values(values)]
        )
        if any(math.isnan(value) for value in values):
            numbers = "NaN"
        if column.is_score and are_constant_predictors(rows):
            return f"constant ({numbers})"
        if not column.is_score:
            del troubles[CONSTANT_PREDICTOR]
        notes = [f", {count} {name.replace('_predictor', '')}" for name, count in troubles.items()]
        mark = self.format_mark(encoder, method, column) if marked else ""
        return " ".join(filter(None, (numbers, mark))) + "".join(notes)

    def format_published_cell(self, encoder: str, method: str, column: Column) -> str:
        """Write the paper's cell in brackets; if it lacks our encoder, another encoder's cell with its name."""
        return format_brackets(
            published.find_cell_in_column(self.content, encoder, method, column.published_name), encoder
        )

    @property
    def has_average(self) -> bool:
        """True if the paper prints the average of each row and a column of this average is shown."""
        return bool(self.content.average) and bool(self.list_paper_columns())

    def list_paper_columns(self) -> list[Column]:
        """List the shown columns that the paper has too."""
        return [column for column in self.columns if column.published_name in self.content.columns]

    def format_average(self, encoder: str, method: str) -> str:
        """Write the row's average over the paper's columns; if not all of them ran, how many did.

        Each column counts with its cell's first statistic, such as the median.
        """
        values = [self.read_values(encoder, method, column) for column in self.list_paper_columns()]
        firsts = [self.summarize_values(column_values)[0] for column_values in values if column_values]
        if len(firsts) < len(self.content.columns):
            return f"{len(firsts)} of {format_count(len(self.content.columns), 'column')}"
        mean = statistics.fmean(math.nan if first is None else first for first in firsts)
        return "NaN" if math.isnan(mean) else f"{mean:.2f}"

    def format_published_average(self, encoder: str, method: str) -> str:
        """Write the paper's average in brackets; if it lacks our encoder, another encoder's with its name."""
        return format_brackets(published.find_average(self.content, encoder, method), encoder)

    @property
    def reported_label(self) -> str:
        """Heading of the rows of others' numbers."""
        return published.find_reported(self.content)[0]

    def list_reported_rows(self) -> list[tuple[str, dict[str, str]]]:
        """List the rows of others' numbers that the paper repeats, for our encoders: encoder, column -> number."""
        encoders = dict.fromkeys(encoder for encoder, _ in self.lines)
        _, reported = published.find_reported(self.content)
        return [
            (encoder, {column: str(value) for column, value in reported[encoder].items()})
            for encoder in encoders
            if encoder in reported and self.list_paper_columns()
        ]

    def format_time(self, encoder: str, method: str) -> str:
        """Write the training time per epoch over plain fine-tuning's: the ratio's median over tasks, and its range.

        With one task the seconds stand before the ratio.
        """
        ratios = []
        seconds = 0.0
        for task in dict.fromkeys(column.task for column in self.columns):
            ours, base = (
                compute_epoch_seconds(self.find_runs(encoder, name, task)) for name in (method, BASE_METHOD)
            )
            if ours and base:
                ratios.append(ours / base)
                seconds = ours
        if not ratios:
            return "-"
        text = f"{statistics.median(ratios):.2f}x"
        return f"{seconds:.1f} s, {text}" if len(ratios) == 1 else f"{text} ({min(ratios):.2f}-{max(ratios):.2f})"

    def list_notes(self, with_time: bool) -> list[str]:
        """Write the sentences below the table: what the marks and times mean, how many marks chance explains."""
        notes = []
        if tests := list(self.p_values.values()):
            notes.append(
                f"{format_mark_legend(self.content.marks)}. Of {format_count(len(tests), 'comparison')}, "
                f"{ALPHA * len(tests):.1f} would have a mark by chance; {count_holm_survivors(tests)}."
            )
            if self.content.marks == "student":
                others = list(self.test_differences(welch).values())
                below = sum(p < ALPHA for p in others)
                notes.append(
                    f"By Welch's t-test, which does not assume equal variances, {below} of {len(others)} have p < "
                    f"{ALPHA}; {count_holm_survivors(others)}."
                )
        notes += dict.fromkeys(f"{column.task}: {column.difference}." for column in self.columns if column.difference)
        if self.has_average:
            notes.append(
                f"{AVERAGE}: the mean over the paper's {len(self.content.columns)} columns, if all of them ran. "
                "Ours are rounded; published.yaml says whether the paper's are."
            )
        if self.list_reported_rows():
            notes.append(f"{self.reported_label}: numbers of others that the paper repeats.")
        if any(column.time for column in self.columns):
            notes.append(
                "Minutes: of training per epoch, without evaluation; the paper's were measured on another machine."
            )
        if with_time:
            notes.append(
                "Training time: of the fastest seed, relative to plain fine-tuning's; of several tasks the median "
                "and the range. Comparable only if the machine did nothing else."
            )
        return notes


def format_brackets(printed: published.PrintedCell | None, encoder: str) -> str:
    """Write a printed number in brackets, with its encoder's name if that is not ours."""
    if printed is None:
        return "not in the paper"
    text, its_encoder = printed
    return f"[{text}]" if its_encoder == encoder else f"[{text} {its_encoder}]"


def count_holm_survivors(p_values: list[float]) -> str:
    """Say how many of these p-values are below ``ALPHA`` after Holm's correction."""
    survivors = sum(p < ALPHA for p in holm(p_values))
    return f"{survivors} survive{'s' * (survivors == 1)} Holm's correction"


def list_paper_tables(experiment: Any, rows: list[Row]) -> Iterator[tuple[str, PublishedTable, list[Column]]]:
    """Return name, content and columns of every table of the experiment's paper; no columns if none of its tasks ran.

    A task that the paper doesn't have gets a column of each kind (score, an isotropy, time) once: in the first table
    with columns of that kind.
    """
    tasks = {row.cfg.task.name: row.cfg.task for row in rows}
    contents = {name: published.load_tables(experiment.paper)[name] for name in experiment.tables if experiment.paper}
    columns_of_all = [column for content in contents.values() for column in content.columns.values()]
    paper_tasks = {task for column in columns_of_all for task in (column.task, *column.variants)}
    foreign = [task for name, task in tasks.items() if name not in paper_tasks]
    used_kinds: set[ColumnKind] = set()  # kinds of columns that the foreign tasks have already
    for name, content in contents.items():
        kinds = dict.fromkeys((column.isotropy, column.time) for column in content.columns.values())
        foreign_columns = build_foreign_columns(foreign, [kind for kind in kinds if kind not in used_kinds])
        yield name, content, [*build_paper_columns(content, tasks), *foreign_columns]
        used_kinds |= set(kinds)
