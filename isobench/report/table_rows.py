"""Turn the tables of a report into tidy rows, one for each cell."""

from isobench.report.document import Cell, Comparison, Report, ReportTable, TidyRows
from isobench.statistics.seeds import compute_cell_statistics

NO_COMPARISON = Comparison(difference=float("nan"))


def build_table_rows(report: Report) -> TidyRows:
    """Build a row for each cell of a report's tables, in the tables' order; None for what a cell lacks.

    `isobench.dataframes.report_table` describes the columns. Numbers of others that the paper repeats come after our
    cells, with the paper's name for them as method and without a number of ours.
    """
    return [row for table in report.tables for row in build_rows(table)]


def build_rows(table: ReportTable) -> TidyRows:
    """Build the rows of one table."""
    names = {"table": table.name or None, "part": table.part or None}
    rows = [
        {
            **names,
            "encoder": line.encoder,
            "method": line.method,
            "settings": line.settings or None,
            "column": column,
            "task": table.tasks.get(column),
            **describe_cell(line.cells[column]),
        }
        for line in table.lines
        for column in table.columns
    ]
    for reported in table.reported:
        rows += [
            {**names, "encoder": reported.encoder, "method": reported.label, "settings": None, "column": column}
            | {"task": table.tasks.get(column), **describe_cell(Cell(published=cell, published_of=reported.encoder))}
            for column, cell in reported.cells.items()
            if column in table.columns
        ]
    return rows


def describe_cell(cell: Cell) -> dict[str, object]:
    """Return a cell's statistics over seeds, its comparison with plain fine-tuning, and the published cell."""
    mean, sd = compute_cell_statistics(cell.values, ["mean", "sd"])
    comparison = cell.comparison or NO_COMPARISON
    return {
        "mean": mean,
        "sd": sd,
        "n": len(cell.values),
        "seeds": ", ".join(map(str, cell.seeds)) or None,
        "difference": comparison.difference,
        "p": comparison.welch,
        "p_holm": comparison.holm,
        "p_permutation": comparison.permutation,
        "p_student": comparison.student,
        "effect": comparison.effect,
        "effect_low": comparison.low,
        "effect_high": comparison.high,
        "ours": cell.ours or None,
        "published": cell.published,
        "published_of": cell.published_of,
        "verdict": cell.verdict or None,
        "why": cell.why or None,
        "troubles": ", ".join(f"{count} {name}" for name, count in cell.troubles.items()) or None,
    }
