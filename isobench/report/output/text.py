"""Write a report as Markdown and as LaTeX: here the text of each cell, in ``templates/`` what stands around it."""

import re
from typing import Any

from isobench.report.build import TIME_NOTE, Line, Report, TableView
from isobench.report.output.templating import make_latex_environment, make_markdown_environment, render_paragraphs
from isobench.report.tables import label_method

VERDICT_SIGNS = {"within": "=", "above": "+", "below": "-"}
MAX_PAGE_COLUMNS = 5  # a LaTeX table with more columns is shrunk to the page's width
CLAIM_COLUMNS = ("paper", "claim", "criterion", "outcome", "numbers", "scale", "experiment")


def format_markdown(report: Report) -> str:
    """Write the whole report as Markdown."""
    return render_paragraphs(
        make_markdown_environment(),
        "report.md.j2",
        report=report,
        scale=_describe_scale(report),
        rows=_list_rows,
        time_note=TIME_NOTE,
    )


def format_claims_markdown(claims: list[dict[str, Any]]) -> str:
    rows = [[claim[name] for name in CLAIM_COLUMNS] for claim in claims]
    return render_paragraphs(make_markdown_environment(), "claims.md.j2", head=CLAIM_COLUMNS, rows=rows)


def format_latex(report: Report) -> str:
    """Write every table of the report in booktabs form; needs the packages booktabs and, for wide ones, graphicx."""
    return render_paragraphs(
        make_latex_environment(),
        "tables.tex.j2",
        report=report,
        caption=_format_caption,
        labels=_list_labels(report),
        remarks=_list_remarks,
        method=format_method,
        marked_cell=_format_marked_cell,
        published=format_published,
        MAX_PAGE_COLUMNS=MAX_PAGE_COLUMNS,
    )


def format_method(line: Any) -> str:
    """Return the method's label, with the configuration that was chosen for it where there was a choice."""
    label = label_method(line.method)
    return f"{label} ({line.settings})" if line.settings else label


def _format_marked_cell(cell: Any) -> str:
    return f"{cell.ours or '-'} {cell.mark}".rstrip()


def format_published(cell: Any) -> str:
    """Return the paper's cell, with its encoder's name if that is not ours; empty if the paper has none."""
    if cell.published is None:
        return ""
    return f"{cell.published} {cell.published_of}" if cell.published_of != cell.encoder else cell.published


def _describe_scale(report: Report) -> list[str]:
    """Return the sentence that says how the setting is not the paper's, or if there is none, what data were used."""
    words = "Not the paper's setting" if report.paper else "Data"
    return [f"{words}: {'; '.join(report.scale)}."] if report.scale else []


def _list_rows(view: TableView) -> list[list[str]]:
    """Return the texts of a Markdown table, line by line: encoder, method, cells, training time."""
    return [
        [
            line.encoder,
            format_method(line),
            *(_format_cell(line, name) for name in view.columns),
            line.time or "-",
        ]
        for line in view.lines
    ]


def _format_cell(line: Line, column: str) -> str:
    """Return our number with its mark; in brackets the paper's, with = + - for within, above, below."""
    cell = line.cells.get(column)
    if cell is None:
        return ""
    ours = "" if line.is_reported else _format_marked_cell(cell)
    sign = VERDICT_SIGNS.get(cell.verdict, "")
    printed = f"[{' '.join(filter(None, (format_published(cell), sign)))}]" if cell.published else ""
    return " ".join(filter(None, (ours, printed)))


def _format_caption(report: Report, view: TableView) -> str:
    """Say in one sentence what a LaTeX table shows: which table and part of the runs, and of how many seeds."""
    name = ", ".join(filter(None, (report.name, view.name, view.part)))
    counts = [cell.n for cell in view.own_cells if cell.n]
    low, high = min(counts, default=0), max(counts, default=0)
    seeds = (
        f", {low} to {high} seeds a cell" if low < high else f", {low} seed{'s' * (low > 1)} a cell" if low else ""
    )
    printed = "; the paper's cell below ours" if any(cell.published for cell in view.own_cells) else ""
    return f"{name}: our runs{seeds}{printed}."


def _list_labels(report: Report) -> list[str]:
    r"""List a ``\label`` for each table, such as ``tab:glue-isobn-table1``; no two are the same."""
    labels: list[str] = []
    for view in report.views:
        words = "-".join(filter(None, (report.name, view.name, view.part))).lower()
        label = f"tab:{re.sub('[^a-z0-9]+', '-', words).strip('-')}"
        labels.append(label if label not in labels else f"{label}-{len(labels) + 1}")
    return labels


def _list_remarks(report: Report, view: TableView) -> list[str]:
    sentences = [report.legend] if view.has_marks else []
    sentences += [f"Selection: {report.selection}", *_describe_scale(report)]
    return [f"{sentence.rstrip('.')}." for sentence in sentences]
