"""What an analysis shows of its rows: tables, beside the paper's printed numbers, figures and notes."""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from isobench.common.files import sha256_file
from isobench.common.terminal import PlainConsole, make_table
from isobench.papers import published

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

Rows = dict[str, list[dict[str, Any]]]  # the outcome of an analysis: rows by name, their values texts and numbers
RowLabel = tuple[str, ...]
LONGEST_TABLE = 30  # rows of a table that no function show has chosen


@dataclass
class Shown:
    """Hold what to show of an analysis's rows."""

    tables: list[Table] = field(default_factory=list)  # for the terminal and the page
    figures: dict[str, "Figure"] = field(default_factory=dict)  # name -> what becomes an SVG file of this name
    notes: list[str] = field(default_factory=list)  # below the tables; what a reader must know
    # Names of those that show neither an encoder nor data: no note on how the setting differs belongs to them.
    independent_figures: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The tables and notes as text, 140 columns wide."""
        out = PlainConsole(width=140, file=io.StringIO(), color_system=None)
        self.print_to(out)
        return out.file.getvalue()  # type: ignore[attr-defined]

    def print_to(self, out: "Console") -> None:
        """Print tables and notes."""
        for table in self.tables:
            out.print(table)
        for note in self.notes:
            out.print(note, highlight=False, markup=False)

    def draw(self) -> dict[str, bytes]:
        """Draw each figure as an SVG file; equal figures give equal bytes."""
        from isobench.common.plots import use_figure_style

        files = {}
        with use_figure_style():
            for name, figure in self.figures.items():
                file = io.BytesIO()
                figure.savefig(file, format="svg", metadata={"Date": None})
                files[name] = file.getvalue()
        return files

    def list_images(self) -> dict[str, str]:
        """Return each figure as a data URI for a page: a browser runs no script of an image."""
        prefix = "data:image/svg+xml;base64,"
        return {name: prefix + base64.b64encode(content).decode() for name, content in self.draw().items()}


def show_all(rows: Rows) -> Shown:
    """Show rows as they are, a table for each name, cut if it is long: for an analysis without ``show``."""
    tables, notes = [], []
    for name, observations in rows.items():
        columns = list(dict.fromkeys(column for row in observations for column in row))
        table = make_table(name, columns, ())
        for row in observations[:LONGEST_TABLE]:
            table.add_row(*(_format_value(row.get(column)) for column in columns))
        tables.append(table)
        if len(observations) > LONGEST_TABLE:
            notes.append(f"{name}: the first {LONGEST_TABLE} of {len(observations):,} rows; {name}.parquet has all.")
    return Shown(tables, {}, notes)


def _format_value(value: Any) -> str:
    return format_number(value, ".4g") if value is None or isinstance(value, float) else str(value)


def describe_registration(file: Path) -> str:
    """Name a study's registration by its sha256, so that a reader can look up its commit."""
    return f"{file.name}: sha256 {sha256_file(file) if file.is_file() else 'not in this installation'}"


def format_number(value: float | None, form: str) -> str:
    """Write a number; a dash where it is undefined."""
    return "-" if value is None or math.isnan(value) else format(value, form)


def format_estimate(row: Mapping[str, Any], form: str = "+.2f") -> str:
    """Write a row's ``value`` with its interval from ``low`` to ``high``; dashes where they are undefined."""
    value, low, high = (format_number(row[name], form) for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def build_comparison_tables(
    title: str, labels: Sequence[str], ours: Mapping[RowLabel, Mapping[str, str]], paper: str, table: str
) -> list[Table]:
    """Build a table of our rows with the published rows below them, in the columns that we have.

    If the paper has none of our columns, its rows go into a second table with the paper's columns.

    Args:
        title: the table's title.
        labels: headings of the columns that name a row: encoder and method, or encoder alone.
        ours: row's names -> column -> cell; a column of the paper's table has the paper's name.
        paper: the paper's folder in ``experiments``.
        table: name of the paper's table.
    """
    content = published.load_tables(paper)[table]
    theirs = {
        (encoder, method)[: len(labels)]: {
            name: published.format_statistics(content.form, values).replace(" / ", "/")
            for name, values in statistics.items()
        }
        for encoder, methods in content.cells.items()
        for method, statistics in methods.items()
    }
    columns = list(dict.fromkeys(name for cells in ours.values() for name in cells))
    if set(columns).isdisjoint(content.columns):
        measured = make_table(title, labels, columns)
        _add_rows(measured, "", ours, columns)
        printed = make_table(f"{title} (the paper's numbers)", labels, content.columns)
        _add_rows(printed, "", theirs, list(content.columns), style="dim")
        return [measured, printed]
    comparison = make_table(title, ("", *labels), columns)
    _add_rows(comparison, "ours", ours, columns)
    comparison.add_section()
    _add_rows(comparison, "paper", theirs, columns, style="dim")
    return [comparison]


def _add_rows(
    table: Table, source: str, rows: Mapping[RowLabel, Mapping[str, str]], columns: Sequence[str], style: str = ""
) -> None:
    """Add the rows that have a cell in one of the columns, each with its source before its names, if there is one."""
    for names, cells in rows.items():
        if not cells.keys().isdisjoint(columns):
            head = (source, *names) if source else names
            table.add_row(*head, *(cells.get(name, "-") for name in columns), style=style)


def find_paper_column(paper: str, table: str, task: str, metric: str) -> str:
    """Return the paper's name for the column of a task and metric; the task's own name if the table has none."""
    return published.find_column(published.load_tables(paper)[table], task, metric) or task
