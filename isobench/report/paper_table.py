"""A paper's table in its own form: methods by tasks, our numbers with marks and times, the published cells below."""

import math
import statistics
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from isobench.common.terminal import format_count
from isobench.papers import published
from isobench.papers.published import PublishedTable
from isobench.report.baseline_comparison import BASE_METHOD, CONSTANT_PREDICTOR
from isobench.report.effects import ALPHA
from isobench.report.paper_columns import (
    Column,
    ColumnKind,
    build_foreign_columns,
    build_paper_columns,
    compute_epoch_seconds,
)
from isobench.report.seed_statistics import (
    choose_mark,
    compute_cell_statistics,
    format_mark_legend,
    holm,
    student,
    welch,
)
from isobench.runs.grouping import read_run_names
from isobench.runs.row import Row, are_constant_predictors, count_troubles

CellKey = tuple[str, str, Column]  # encoder, method, column


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
        """Test each score against plain fine-tuning's; undefined and constant cells have no p."""
        p_values = {}
        for encoder, method in self.lines:
            for column in self.columns:
                cells = [(encoder, name, column) for name in (method, BASE_METHOD)]
                if method != BASE_METHOD and column.is_score and not any(self.is_constant(*cell) for cell in cells):
                    p_values[cells[0]] = test(*(self.read_values(*cell) for cell in cells))
        return {cell: p for cell, p in p_values.items() if not math.isnan(p)}

    def is_constant(self, encoder: str, method: str, column: Column) -> bool:
        """Return True if every run predicts the same for every example."""
        return are_constant_predictors(self.find_runs(encoder, method, column.task))

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
        if column.is_score and self.is_constant(encoder, method, column):
            return f"constant ({numbers})"
        if not column.is_score:
            del troubles[CONSTANT_PREDICTOR]
        notes = [f", {count} {name.replace('_predictor', '')}" for name, count in troubles.items()]
        mark = self.format_mark(encoder, method, column) if marked else ""
        return " ".join(filter(None, (numbers, mark))) + "".join(notes)

    def format_published_cell(self, encoder: str, method: str, column: Column) -> str:
        """Write the paper's cell in brackets; if it lacks our encoder, another encoder's cell with its name."""
        published_cell = published.find_cell_in_column(self.content, encoder, method, column.published_name)
        if published_cell is None:
            return "not in the paper"
        text, its_encoder = published_cell
        return f"[{text}]" if its_encoder == encoder else f"[{text} {its_encoder}]"

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
        if any(column.time for column in self.columns):
            notes.append(
                "Minutes: of training per epoch, without evaluation; the paper's were measured on another machine."
            )
        if with_time:
            notes.append("Training time: of the fastest seed; comparable only if the machine did nothing else.")
        return notes


def count_holm_survivors(p_values: list[float]) -> str:
    """Say how many of these p-values are below ``ALPHA`` after Holm's correction."""
    survivors = sum(p < ALPHA for p in holm(p_values))
    return f"{survivors} survive{'s' * (survivors == 1)} Holm's correction"


def print_paper_tables(out: Console, experiment: Any, rows: list[Row]) -> None:
    """Print the tables of the experiment's paper that have columns for its runs."""
    for number, (name, content, columns) in enumerate(list_paper_tables(experiment, rows)):
        if columns:
            table = PaperTable(content, columns, rows)
            title = f"{experiment.paper}, {name}: {published.format_statistics(content.form, content.form)}"
            for drawn in build_terminal_tables(table, title, out.width, with_time=number == 0):
                out.print(drawn)
            for note in table.list_notes(with_time=number == 0):
                out.print(note, highlight=False, markup=False)


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


def build_terminal_tables(table: PaperTable, title: str, width: int, with_time: bool) -> Iterator[Table]:
    """Build the table for the terminal, broken into several below one another if it is wider than ``width``."""
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
        columns.append(["training time per epoch", *(table.format_time(*line) for line in table.lines)])
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
    """Return the width of a table's column with these texts, in characters, borders included."""
    return 3 + max(len(line) for text in texts for line in text.splitlines())
