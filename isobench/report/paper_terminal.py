"""Print a paper's tables with our numbers on the terminal."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from isobench.papers import published
from isobench.report.baseline_comparison import label_method
from isobench.report.paper_columns import Column
from isobench.report.paper_table import AVERAGE, PaperTable, list_paper_tables
from isobench.runs.row import Row


def print_paper_tables(out: Console, experiment: Any, rows: list[Row]) -> None:
    """Print the tables of the experiment's paper that have columns for its runs.

    Scores of tasks that the paper doesn't have are left out: they can't be compared, and the sweep's own table shows
    them.
    """
    with_time = True
    for name, content, columns in list_paper_tables(experiment, rows):
        shown = [column for column in columns if column.published_name in content.columns or not column.is_score]
        if shown:
            table = PaperTable(content, shown, rows)
            title = f"{experiment.paper}, {name}: {published.format_statistics(content.form, content.form)}"
            for drawn in build_terminal_tables(table, title, out.width, with_time):
                out.print(drawn)
            for note in table.list_notes(with_time):
                out.print(note, highlight=False, markup=False)
            with_time = False


def build_terminal_tables(table: PaperTable, title: str, width: int, with_time: bool) -> Iterator[Table]:
    """Build the table for the terminal, broken into several below one another if it is wider than ``width``."""
    columns = [
        [column.title, *(format_both_cells(table, line, column) for line in table.lines)] for column in table.columns
    ]
    if table.has_average:
        averages = (f"{table.format_average(*line)}\n{table.format_published_average(*line)}" for line in table.lines)
        columns.insert(0, [AVERAGE, *averages])
    reported = table.list_reported_rows()
    for column in columns:
        column += [f"[{cells[column[0]]}]" if column[0] in cells else "" for _, cells in reported]
    if with_time:
        times = [table.format_time(*line) for line in table.lines]
        columns.append(["training time per epoch", *times, *("" for _ in reported)])
    labels = [f"{label_method(method)}\n{encoder}" for encoder, method in table.lines]
    labels += [f"{table.reported_label}\n{encoder}" for encoder, _ in reported]
    label = compute_column_width(labels)
    while columns:
        count, used = 1, label + compute_column_width(columns[0])
        while count < len(columns) and used + compute_column_width(columns[count]) < width:
            used += compute_column_width(columns[count])
            count += 1
        part = Table(title=title, title_justify="left", header_style="bold")
        part.add_column("")
        for header, *_ in columns[:count]:
            part.add_column(header, justify="right", overflow="fold")
        for number, text in enumerate(labels, 1):
            part.add_row(text, *(column[number] for column in columns[:count]))
        yield part
        title, columns = "", columns[count:]


def format_both_cells(table: PaperTable, line: tuple[str, str], column: Column) -> str:
    """Write our cell with the published one below it; ours alone in a column that the paper doesn't have."""
    ours = table.format_cell(*line, column)
    if column.published_name not in table.content.columns:
        return ours
    return f"{ours}\n{table.format_published_cell(*line, column)}"


def compute_column_width(texts: list[str]) -> int:
    """Return the width of a table's column with these texts, in characters, borders included."""
    return 3 + max(len(line) for text in texts for line in text.splitlines())
