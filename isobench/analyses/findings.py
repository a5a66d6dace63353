"""What an analysis hands back, and writing it: numbers, figures, tables beside the published ones."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from isobench.common.files import write_atomic
from isobench.common.tidy import write_rows
from isobench.papers import published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RowLabel = tuple[str, ...]


@dataclass
class Findings:
    """The outcome of an analysis.

    ``numbers``: file name -> tidy rows. ``figures``: file name -> figure. ``tables``: what the terminal shows.
    ``notes``: what has to be known to read them. ``differs``: how all of it is not the paper's setting;
    None: as encoders and data are not.
    """

    numbers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    figures: dict[str, "Figure"] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    differs: list[str] | None = None

    def write(self, folder: Path) -> list[Path]:
        """Write every file, whole or not at all; returns them."""
        from isobench.common.plots import use_figure_style

        files: list[Path] = []

        def put(name: str, write: Callable[[Path], Any]) -> None:
            files.append(folder / name)
            write_atomic(files[-1], write)

        for name, rows in self.numbers.items():
            files += write_rows(folder, name, rows)
        for name, figure in self.figures.items():
            with use_figure_style():  # also how a figure is saved; without a date the same numbers are the same bytes
                put(f"{name}.png", partial(figure.savefig, format="png"))
                put(f"{name}.svg", partial(figure.savefig, format="svg", metadata={"Date": None}))
        if self.tables:
            put("tables.txt", lambda file: file.write_text(self.text(), encoding="utf-8"))
        return files

    def text(self) -> str:
        """Tables and notes as a terminal of 140 columns shows them."""
        out = Console(width=140, file=io.StringIO(), color_system=None)
        self.print_to(out)
        return out.file.getvalue()  # type: ignore[attr-defined]

    def print_to(self, out: Console) -> None:
        """Print tables and notes."""
        for table in self.tables:
            out.print(table)
        for note in self.notes:
            out.print(note, highlight=False, markup=False)


def build_comparison_table(
    title: str, labels: Sequence[str], ours: Mapping[RowLabel, Mapping[str, str]], paper: str, table: str
) -> Table:
    """Our lines, and below them the paper's own.

    Args:
        title: of the table.
        labels: headings of the parts that a line's name has: encoder and method, or encoder alone.
        ours: a line's name -> column -> what stands there; columns that the paper has go by its printed name.
        paper: folder of ``experiments``.
        table: which of its tables.
    """
    content = published.load_tables(paper)[table]
    columns = list(dict.fromkeys([*(name for cells in ours.values() for name in cells), *content.columns]))
    shown = Table(title=title, title_justify="left", header_style="bold")
    for label in ("", *labels):
        shown.add_column(label, overflow="fold")
    for name in columns:
        shown.add_column(name, justify="right", no_wrap=True)
    for line, cells in ours.items():
        shown.add_row("ours", *line, *(cells.get(name, "-") for name in columns))
    shown.add_section()
    for encoder, methods in content.cells.items():
        for method, found in methods.items():
            texts = {
                name: published.format_statistics(content.form, found[name]).replace(" / ", "/") for name in found
            }
            line = (encoder, method)[: len(labels)]
            shown.add_row("paper", *line, *(texts.get(name, "-") for name in columns), style="dim")
    return shown


def find_paper_column(paper: str, table: str, task: str, metric: str) -> str:
    """The column of a task: the paper's printed name if it has one, else the task's own."""
    return published.find_column(published.load_tables(paper)[table], task, metric) or task
