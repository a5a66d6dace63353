"""What an analysis returns and how it is written: numbers, figures, and tables beside the published ones."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
from rich.console import Console
from rich.table import Table

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import write_whole
from isobench.common.terminal import PlainConsole
from isobench.common.tidy import write_rows
from isobench.papers import published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RowLabel = tuple[str, ...]


@dataclass
class Findings:
    """The outcome of an analysis.

    Attributes:
        numbers: file name -> tidy rows, written as Parquet and CSV.
        figures: file name -> figure, written as PNG and SVG.
        tables: shown on the terminal.
        notes: shown below the tables; what a reader must know.
        differs: how the setting differs from the paper's; None stands for how encoders and data differ.
        independent_figures: names of the figures that show neither an encoder nor data, so ``differs`` doesn't apply
            to them.
    """

    numbers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    figures: dict[str, "Figure"] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    differs: list[str] | None = None
    independent_figures: tuple[str, ...] = ()

    def write(self, folder: Path) -> list[Path]:
        """Write every file into a folder, each whole or not at all; returns the files.

        Raises:
            UserError: a column of the numbers has values of several kinds.
        """
        from isobench.common.plots import use_figure_style

        files: list[Path] = []

        def put(name: str, write: Callable[[Path], Any]) -> None:
            files.append(folder / name)
            with write_whole(files[-1]) as temporary:
                write(temporary)

        for name, rows in self.numbers.items():
            try:
                files += write_rows(folder, name, rows)
            except pyarrow.ArrowException as error:
                reason = extract_first_line(error)
                raise UserError(f"the numbers {name} mix several types in one column: {reason}") from error
        for name, figure in self.figures.items():
            with use_figure_style():  # for saving too; without a date, equal figures are equal files
                put(f"{name}.png", partial(figure.savefig, format="png"))
                put(f"{name}.svg", partial(figure.savefig, format="svg", metadata={"Date": None}))
        if self.tables:
            put("tables.txt", lambda file: file.write_text(self.render_text(), encoding="utf-8"))
        return files

    def render_text(self) -> str:
        """Return tables and notes as text, 140 columns wide."""
        out = PlainConsole(width=140, file=io.StringIO(), color_system=None)
        self.print_to(out)
        return out.file.getvalue()  # type: ignore[attr-defined]

    def print_to(self, out: Console) -> None:
        """Print tables and notes."""
        for table in self.tables:
            out.print(table)
        for note in self.notes:
            out.print(note, highlight=False, markup=False)


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
        own, printed = (
            make_table(title, labels, columns),
            make_table(f"{title} (the paper's numbers)", labels, content.columns),
        )
        add_rows(own, "", ours, columns)
        add_rows(printed, "", theirs, list(content.columns), style="dim")
        return [own, printed]
    comparison = make_table(title, ("", *labels), columns)
    add_rows(comparison, "ours", ours, columns)
    comparison.add_section()
    add_rows(comparison, "paper", theirs, columns, style="dim")
    return [comparison]


def add_rows(
    table: Table, source: str, rows: Mapping[RowLabel, Mapping[str, str]], columns: Sequence[str], style: str = ""
) -> None:
    """Add rows that have a cell in one of these columns, with a dash for each cell that they lack.

    Args:
        table: the table; its first column is ``source`` unless that is empty, then come the row's names.
        source: whose numbers these are.
        rows: row's names -> column -> cell.
        columns: the columns, in order.
        style: of the rows, for the terminal.
    """
    for names, cells in rows.items():
        if not cells.keys().isdisjoint(columns):
            head = (source, *names) if source else names
            table.add_row(*head, *(cells.get(name, "-") for name in columns), style=style)


def make_table(title: str, labels: Iterable[str], numbers: Iterable[str], wrap_numbers: bool = False) -> Table:
    """Make an empty table for the terminal.

    Args:
        title: the table's title.
        labels: headings of the left-aligned columns, which fold onto more lines where they are too wide.
        numbers: headings of the right-aligned columns after them.
        wrap_numbers: let right-aligned columns wrap too.
    """
    table = Table(title=title, title_justify="left", header_style="bold")
    for heading in labels:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=not wrap_numbers)
    return table


def find_paper_column(paper: str, table: str, task: str, metric: str) -> str:
    """Return the paper's name for the column of a task and metric; the task's own name if the table has none."""
    return published.find_column(published.load_tables(paper)[table], task, metric) or task
