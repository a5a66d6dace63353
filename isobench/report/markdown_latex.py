"""Write a report as Markdown and as LaTeX: here the text of each cell, in ``templates/`` what stands around it."""

import re
from typing import Any

from isobench.report.baseline_comparison import choose_mark, format_mark_legend, label_method
from isobench.report.document import Cell, Report, ReportLine, ReportTable
from isobench.report.evidence import BASELINE, describe_p, format_interval, format_points
from isobench.report.templating import make_latex_environment, make_markdown_environment, render_paragraphs
from isobench.statistics.seeds import ALPHA

VERDICT_SIGNS = {"within": "=", "above": "+", "below": "-", "not comparable": "", "": ""}
MAX_PAGE_COLUMNS = 5  # a LaTeX table with more columns is shrunk to the page's width
CLAIM_COLUMNS = ("paper", "claim", "outcome", "numbers", "scale", "experiment")


def format_markdown(report: Report) -> str:
    """Write the whole report as Markdown."""
    return render_paragraphs(
        make_markdown_environment(),
        "report.md.j2",
        report=report,
        total=sum(report.state.values()),
        scale=describe_scale(report),
        head=lambda table: ["encoder", "method", *table.columns, "training time"],
        rows=list_table_rows,
        pair_head=["encoder", "method", "column", f"difference from {BASELINE}, points", "p", "seeds", "examples"],
        pair_rows=list_pair_rows(report),
        needs_legend=needs_legend,
        legend=format_legend,
    )


def format_claims_markdown(claims: list[dict[str, Any]]) -> str:
    """Write the papers' claims with their outcomes as a Markdown table."""
    rows = [[claim[name] for name in CLAIM_COLUMNS] for claim in claims]
    return render_paragraphs(make_markdown_environment(), "claims.md.j2", head=CLAIM_COLUMNS, rows=rows)


def format_latex(report: Report) -> str:
    """Write every table of the report in booktabs form; needs the packages booktabs and, for wide ones, graphicx."""
    return render_paragraphs(
        make_latex_environment(),
        "tables.tex.j2",
        report=report,
        caption=format_caption,
        labels=list_labels(report),
        remarks=list_remarks,
        method=format_method,
        marked_cell=format_marked_cell,
        published=format_published,
        MAX_PAGE_COLUMNS=MAX_PAGE_COLUMNS,
    )


def list_table_rows(table: ReportTable) -> list[list[str]]:
    """Return the texts of a Markdown table, line by line: encoder, method, cells, training time."""
    ours = [
        [line.encoder, format_method(line), *(format_cell(line.cells[name]) for name in table.columns), line.time]
        for line in table.lines
    ]
    reported = [
        [
            row.encoder,
            row.label,
            *(f"[{row.cells[name]}]" if name in row.cells else "" for name in table.columns),
            "-",
        ]
        for row in table.reported
    ]
    return ours + reported


def list_pair_rows(report: Report) -> list[list[str]]:
    """List the rows of a Markdown table: encoder, method, column, difference with interval, p, seeds and examples.

    In a row without a test, the reason stands in the place of the difference.
    """
    rows = []
    for table in report.tables:
        for line in table.lines:
            for column in table.columns:
                comparison = line.cells[column].comparison if column in line.cells else None
                if comparison and (pair := comparison.paired):
                    numbers = [pair.reason, "-", "-", "-"]
                    if not pair.reason:
                        difference = format_interval(pair.difference, format_points)
                        numbers = [difference, describe_p(pair.p), str(pair.seeds), f"{pair.examples:,}"]
                    rows.append([table.name_group(line), format_method(line), column, *numbers])
    return rows


def needs_legend(table: ReportTable) -> bool:
    """Return True if the table has marks that none of its notes explains."""
    has_marks = any(format_mark(cell) for line in table.lines for cell in line.cells.values())
    return has_marks and not any(note.startswith(format_mark_legend(table.marks)) for note in table.notes)


def format_legend(table: ReportTable, holm_word: str) -> str:
    """Explain the table's marks, and the word of the differences that survive Holm's correction."""
    survival = "still so after Holm's correction"
    if table.marks != "welch":
        survival = f"p < {ALPHA} by Welch's t-test after Holm's correction"
    return f"{format_mark_legend(table.marks)}; {holm_word}: {survival}"


def format_caption(report: Report, table: ReportTable) -> str:
    """Say in one sentence what a LaTeX table shows: which table and part of the runs, and of how many seeds."""
    cells = [cell for line in table.lines for cell in line.cells.values()]
    name = ", ".join(filter(None, (report.experiment, table.name, table.part)))
    published = "; the paper's cell below ours" if any(cell.published for cell in cells) else ""
    return f"{name}: our runs{format_seeds_per_cell(cells)}{published}."


def list_labels(report: Report) -> list[str]:
    r"""List a ``\label`` for each table, such as ``tab:glue-isobn-table1``; no two are the same."""
    labels: list[str] = []
    for table in report.tables:
        words = "-".join(filter(None, (report.experiment, table.name, table.part))).lower()
        label = f"tab:{re.sub('[^a-z0-9]+', '-', words).strip('-')}"
        labels.append(label if label not in labels else f"{label}-{len(labels) + 1}")
    return labels


def list_remarks(report: Report, table: ReportTable) -> list[str]:
    """List the sentences below a LaTeX table: what its marks mean, how runs were selected, whose setting it is."""
    has_marks = any(format_mark(cell) for line in table.lines for cell in line.cells.values())
    sentences = [format_legend(table, "Holm")] if has_marks else []
    sentences += [f"Selection: {report.selection}"] if report.selection else []
    return [f"{sentence.rstrip('.')}." for sentence in [*sentences, *describe_scale(report)]]


def format_seeds_per_cell(cells: list[Cell]) -> str:
    """Say how many seeds the cells have; return nothing if no cell has any."""
    counts = [len(cell.values) for cell in cells if cell.values]
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f", {low} to {high} seeds a cell" if low < high else f", {low} seed{'s' if low > 1 else ''} a cell"


def format_method(line: ReportLine) -> str:
    """Return the method's label, with the configuration that was chosen for it where there was a choice."""
    label = label_method(line.method)
    return f"{label} ({line.settings})" if line.settings else label


def format_mark(cell: Cell | None) -> str:
    """Return the mark of a cell's comparison with plain fine-tuning, before Holm's correction; empty without one."""
    comparison = cell.comparison if cell else None
    return choose_mark(comparison.mark_p, comparison.difference) if comparison else ""


def format_marked_cell(cell: Cell, holm_word: str) -> str:
    """Return our number with its mark, and with ``holm_word`` where the difference survives Holm's correction."""
    text = cell.ours or "-"
    if not format_mark(cell) or cell.comparison is None:
        return text
    holm = cell.comparison.holm
    return f"{text} {format_mark(cell)}" + (f" {holm_word}" if holm is not None and holm < ALPHA else "")


def format_cell(cell: Cell) -> str:
    """Return our number with its mark; in brackets the paper's, with = + - for within, above, below."""
    text = format_marked_cell(cell, "(Holm)")
    if not cell.published:
        return text
    return f"{text} [{' '.join(filter(None, (format_published(cell), VERDICT_SIGNS[cell.verdict])))}]"


def format_published(cell: Cell) -> str:
    """Return the paper's cell, with its encoder's name if that is not ours; empty if the paper has none."""
    if cell.published is None:
        return ""
    is_other_encoder = cell.why.startswith("the paper's cell is")
    return f"{cell.published} {cell.published_of}" if is_other_encoder else cell.published


def describe_scale(report: Report) -> list[str]:
    """Return the sentence that says how the setting is not the paper's, or if there is none, what data were used."""
    words = "Not the paper's setting" if report.paper else "Data"
    return [f"{words}: {'; '.join(report.scale)}."] if report.scale else []
