"""Arrange the cells of a report into the tables that are printed: title, lines by columns, notes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from isobench.common.terminal import format_count
from isobench.papers import published
from isobench.papers.published import PublishedTable
from isobench.report.cells import AVERAGE
from isobench.report.columns import find_content
from isobench.report.tables import BASE_METHOD, BASELINE
from isobench.report.wording import MARK_TESTS
from isobench.statistics.seeds import ALPHA, holm

TIME_NOTE = (
    "Training time: of the fastest seed, relative to plain fine-tuning's; of several tasks the median and the range. "
    "Comparable only if the machine did nothing else."
)


@dataclass(frozen=True)
class Line:
    """A line of a table: an encoder and method, or a row of others' numbers that the paper repeats.

    Attributes:
        encoder, method, settings, time: as in ``cells``.
        cells: column title -> the cell, a row of ``cells``.
        is_reported: True for others' numbers.
    """

    encoder: str
    method: str
    settings: str
    time: str
    cells: dict[str, Any]
    is_reported: bool


@dataclass(frozen=True)
class TableView:
    """One table of a report.

    Attributes:
        name: its name in published.yaml; empty if the paper has no such table.
        part: the part of the runs that it shows; empty if there is only one.
        title: the heading above it.
        columns: titles of the columns.
        lines: ours first, then the rows that the paper repeats from others.
        notes: sentences below it.
        mark_test: the test that the marks come from, welch or student.
    """

    name: str
    part: str
    title: str
    columns: list[str]
    lines: list[Line]
    notes: list[str]
    mark_test: str

    @property
    def own_lines(self) -> list[Line]:
        """The lines of our runs."""
        return [line for line in self.lines if not line.is_reported]

    @property
    def own_cells(self) -> list[Any]:
        """The cells of our runs."""
        return [cell for line in self.own_lines for cell in line.cells.values()]

    @property
    def has_marks(self) -> bool:
        """True if a difference is marked."""
        return any(cell.mark for cell in self.own_cells)


def list_views(report: Any) -> list[TableView]:
    """List the tables of a report (`isobench.report.build.Report`), in the paper's order for each part."""
    views = []
    for (name, part), cells in report.cells.groupby(["table", "part"], sort=False):
        content = find_content(report.experiment, name)
        title, _, form = content.what.partition("; ")  # the form tells the paper's number of seeds, not ours
        title = f"{report.experiment.paper}, {name}: {title}" if name else "mean and standard deviation over seeds"
        own = cells[cells["kind"] != "reported"]
        lines: dict[tuple[Any, ...], Line] = {}
        for cell in cells.itertuples():
            is_reported = cell.kind == "reported"
            line = Line(cell.encoder, cell.method, cell.settings, cell.time, {}, is_reported)
            lines.setdefault((cell.encoder, cell.method, is_reported), line).cells[cell.column] = cell
        notes = list_notes(content, own)
        if len(lines) > len(own[["encoder", "method"]].drop_duplicates()):
            notes.append(f"{published.find_reported(content)[0]}: numbers of others that the paper repeats.")
        if form and name:
            notes.append(f"In the paper: {form}. Ours are the same statistics of our own runs.")
        columns = list(own["column"].unique())
        title = f"{title} ({part})" if part else title
        views.append(TableView(name, part, title, columns, list(lines.values()), notes, content.marks))
    return views


def list_notes(content: PublishedTable, cells: pd.DataFrame) -> list[str]:
    """Write the sentences below a table: what the marks mean, how many of them chance explains, how it differs."""
    notes = []
    tests = cells["p_student" if content.marks == "student" else "p"].dropna()
    if len(tests):
        notes.append(
            f"{format_legend(content.marks, '(Holm)')}. Of {format_count(len(tests), 'comparison')}, "
            f"{ALPHA * len(tests):.2g} would have a mark by chance; {_count_holm_survivors(list(tests))}."
        )
        if content.marks == "student":
            others = cells["p"].dropna()
            found = f"{(others < ALPHA).sum()} of {len(others)} have p < {ALPHA}"
            notes.append(
                f"By Welch's t-test, which does not assume equal variances, {found}; "
                f"{_count_holm_survivors(list(others))}."
            )
    variants = {name: words for column in content.columns.values() for name, words in column.variants.items()}
    notes += [f"{task}: {variants[task]}." for task in cells["task"].dropna().unique() if task in variants]
    if AVERAGE in set(cells["column"]):
        notes.append(
            f"{AVERAGE}: the mean over the paper's {len(content.columns)} columns, if all of them ran. "
            "Ours are rounded; published.yaml says whether the paper's are."
        )
    if "time" in set(cells["kind"]):
        notes.append(
            "Minutes: of training per epoch, without evaluation; the paper's were measured on another machine."
        )
    return notes


def format_legend(mark_test: str, holm_word: str) -> str:
    """Explain a table's marks, and the word of the differences that survive Holm's correction."""
    survival = "still so after Holm's correction"
    if mark_test != "welch":
        survival = f"p < {ALPHA} by Welch's t-test after Holm's correction"
    marks = f"* better, † worse than {BASELINE}: p < {ALPHA} ({MARK_TESTS[mark_test]}, not corrected)"
    return f"{marks}; {holm_word}: {survival}"


def _count_holm_survivors(p_values: Sequence[float]) -> str:
    """Say how many of these p-values are below ``ALPHA`` after Holm's correction."""
    survivors = sum(p < ALPHA for p in holm(p_values))
    return f"{survivors} survive{'s' * (survivors == 1)} Holm's correction"


def has_other_methods(view: TableView) -> bool:
    """Return True if a table has a method besides plain fine-tuning."""
    return any(line.method != BASE_METHOD for line in view.own_lines)
