"""A report as Markdown and as LaTeX."""

import re

from isobench.report.model import Cell, Report, ReportTable

SYMBOLS = {"within": "=", "above": "+", "below": "-", "not comparable": "", "": ""}
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "†": r"$\dagger$", "<": r"$<$", ">": r"$>$",
}  # fmt: skip


def markdown(report: Report) -> str:
    """The whole report, tables as pipes."""
    parts = [f"# {report.experiment}", state(report), *(f"**{line}**" for line in scale(report))]
    parts += ["## What the runs support", "\n".join(f"- {pipe(sentence)}" for sentence in report.evidence)]
    for table in report.tables:
        parts += [f"## {pipe(table.title)}", markdown_table(table), "\n".join(f"- {pipe(n)}" for n in table.notes)]
    parts += [f"Selection: {report.selection}"]
    for title, lines in (("Failures", report.failures), ("Warnings", report.notes)):
        if lines:
            parts += [f"## {title}", "\n".join(f"- {pipe(line)}" for line in lines)]
    parts += ["## Provenance", "\n".join(f"- {name}: {pipe(value)}" for name, value in report.provenance.items())]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(table: ReportTable) -> str:
    """A table as pipes: our cell, then the paper's in brackets with = + - for within, above, below its spread."""
    head = ["encoder", "method", *table.columns, "training time"]
    lines = []
    for line in table.lines:
        cells = (cell_text(line.cells[column]) for column in table.columns)
        lines.append([line.encoder, line.method, *cells, line.time])
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(pipe, row)) + " |" for row in rows)


def latex(report: Report) -> str:
    """Every table in booktabs form; needs ``\\usepackage{booktabs}`` and nothing else."""
    said = " ".join(scale(report))
    parts = [f"% {report.experiment}: made by isobench; needs \\usepackage{{booktabs}}"]
    parts += [latex_table(table, said) for table in report.tables]
    return "\n\n".join(parts) + "\n"


def latex_table(table: ReportTable, said: str) -> str:
    """One table; the published cell stands below ours."""
    head = ["encoder", "method", *table.columns]
    rows = []
    for line in table.lines:
        cells = [line.cells[column] for column in table.columns]
        rows.append([line.encoder, line.method, *(cell.ours or "-" for cell in cells)])
        if any(cell.published for cell in cells):
            rows.append(["", "published", *(printed(cell) or "" for cell in cells)])
    body = [" & ".join(map(tex, row)) + r" \\" for row in rows]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{tex(table.title)}. {tex(said)}}}",
            rf"\begin{{tabular}}{{ll{'r' * len(table.columns)}}}",
            r"\toprule",
            " & ".join(map(tex, head)) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def cell_text(cell: Cell) -> str:
    """Ours with what survives Holm marked, the paper's in brackets with its verdict."""
    text = cell.ours or "-"
    if cell.comparison and cell.comparison.holm is not None and cell.comparison.holm < 0.05:
        text += " (Holm)"
    if cell.published:
        text += f" [{printed(cell)}{' ' + SYMBOLS[cell.verdict] if SYMBOLS[cell.verdict] else ''}]"
    return text


def printed(cell: Cell) -> str:
    """The paper's cell; of another encoder, named."""
    if cell.published is None:
        return ""
    foreign = cell.why.startswith("the paper's cell is")
    return f"{cell.published} {cell.published_of}" if foreign else cell.published


def state(report: Report) -> str:
    """How many runs are in which state."""
    return f"{sum(report.state.values())} runs: " + ", ".join(f"{n} {name}" for name, n in report.state.items()) + "."


def scale(report: Report) -> list[str]:
    """The sentence on the setting, none where it is the paper's."""
    return [f"Not the paper's setting: {'; '.join(report.scale)}."] if report.scale else []


def pipe(text: str) -> str:
    """Text that neither ends a Markdown cell nor starts markup."""
    return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", text.replace("\n", " "))


def tex(text: str) -> str:
    """Text as LaTeX sets it."""
    return "".join(LATEX.get(character, character) for character in text.replace("\n", " "))
