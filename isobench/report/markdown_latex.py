"""A report as Markdown and as LaTeX."""

import re
import unicodedata

from isobench.report.baseline_comparison import BASE_METHOD
from isobench.report.document import Cell, Report, ReportLine, ReportTable
from isobench.report.effects import ALPHA

VERDICT_SIGNS = {"within": "=", "above": "+", "below": "-", "not comparable": "", "": ""}
LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "†": r"$\dagger$", "<": r"$<$", ">": r"$>$",
    "\N{MINUS SIGN}": r"$-$", "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{EN DASH}": "--",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
}  # fmt: skip
MAX_PAGE_COLUMNS = 5  # columns that still fit a page
MARK_LEGEND = f"* better, † worse than {BASE_METHOD}: p < {ALPHA} (Welch's t-test over seeds, not corrected)"


def format_markdown(report: Report) -> str:
    """The whole report, tables as pipes."""
    parts = [f"# {report.experiment}", format_run_states(report), *(f"**{line}**" for line in describe_scale(report))]
    parts += ["## What the runs support", "\n".join(f"- {escape_markdown(sentence)}" for sentence in report.evidence)]
    for table in report.tables:
        has_marks = any(format_mark(cell) for line in table.lines for cell in line.cells.values())
        parts += [f"## {escape_markdown(table.title)}", format_markdown_table(table)]
        if has_marks and not any(note.startswith("* better") for note in table.notes):  # a note may say it already
            parts += [escape_markdown(f"{MARK_LEGEND}; (Holm): still so after Holm's correction.")]
        parts += ["\n".join(f"- {escape_markdown(n)}" for n in table.notes)]
    parts += [f"Selection: {report.selection}"]
    for title, lines in (("Failures", report.failures), ("Notes", report.notes)):
        if lines:
            parts += [f"## {title}", "\n".join(f"- {escape_markdown(line)}" for line in lines)]
    parts += [
        "## Provenance",
        "\n".join(f"- {name}: {escape_markdown(value)}" for name, value in report.provenance.items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def format_markdown_table(table: ReportTable) -> str:
    """A table as pipes: ours with its mark, the paper's in brackets with = + - for within, above, below."""
    head = ["encoder", "method", *table.columns, "training time"]
    lines = []
    for line in table.lines:
        cells = (format_cell(line.cells[column]) for column in table.columns)
        lines.append([line.encoder, format_method(line), *cells, line.time])
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(escape_markdown, row)) + " |" for row in rows)


def format_latex(report: Report) -> str:
    """Every table in booktabs form; needs the packages booktabs and, for wide ones, graphicx."""
    needs = r"\usepackage{booktabs} and \usepackage{graphicx}"
    parts = [f"% {escape_latex_comment(report.experiment)}: made by isobench; needs {needs}"]
    parts += [format_latex_table(table, format_caption(report, table)) for table in report.tables]
    return "\n\n".join(parts) + "\n"


def format_latex_table(table: ReportTable, said: str) -> str:
    """One table; the published cell stands below ours."""
    head = ["encoder", "method", *table.columns]
    rows = []
    for line in table.lines:
        cells = [line.cells[column] for column in table.columns]
        rows.append([line.encoder, format_method(line), *(format_marked_cell(cell, "Holm") for cell in cells)])
        if any(cell.published for cell in cells):
            rows.append(["", "published", *(format_published(cell) or "" for cell in cells)])
    tabular = [
        rf"\begin{{tabular}}{{ll{'r' * len(table.columns)}}}",
        r"\toprule",
        format_latex_row(head),
        r"\midrule",
        *map(format_latex_row, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if len(table.columns) > MAX_PAGE_COLUMNS:
        tabular = [r"\resizebox{\linewidth}{!}{%", *tabular[:-1], tabular[-1] + "}"]
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(said)}}}", *tabular, r"\end{table}"]
    return "\n".join(lines)


def format_latex_row(texts: list[str]) -> str:
    """A line of a LaTeX table; the first cell must not look like the argument of the line break before."""
    return (
        " & ".join("{}" + escape_latex(text) if text.startswith("[") else escape_latex(text) for text in texts)
        + r" \\"
    )


def format_caption(report: Report, table: ReportTable) -> str:
    """What a table shows: whose numbers, of how many seeds, what the marks mean, how they were selected."""
    cells = [cell for line in table.lines for cell in line.cells.values()]
    name = f"{report.experiment}, {table.name}" if table.name else report.experiment
    said = [f"{name}; our runs{format_seeds_per_cell(cells)}"]
    if any(cell.published for cell in cells):
        said[0] += "; the paper's cell below ours"
    if any(format_mark(cell) for cell in cells):
        said.append(f"{MARK_LEGEND}; Holm: still so after Holm's correction")
    if report.selection:
        said.append(f"Selection: {report.selection}")
    return " ".join(f"{sentence.rstrip('.')}." for sentence in [*said, *describe_scale(report)])


def format_seeds_per_cell(cells: list[Cell]) -> str:
    """How many seeds the cells are of; nothing where no cell has one."""
    counts = [len(cell.values) for cell in cells if cell.values]
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f", {low} to {high} seeds a cell" if low < high else f", {low} seed{'s' if low > 1 else ''} a cell"


def format_method(line: ReportLine) -> str:
    """The method, with the configuration chosen for it where there was a choice."""
    return f"{line.method} ({line.settings})" if line.settings else line.method


def format_mark(cell: Cell | None) -> str:
    """* for significantly better than plain fine-tuning, † for worse, before correction."""
    found = cell.comparison if cell else None
    if found is None or found.welch is None or found.welch >= ALPHA:
        return ""
    return "*" if found.difference > 0 else "†"


def format_marked_cell(cell: Cell, survives: str) -> str:
    """Ours with its mark, and with the word for what Holm's correction leaves."""
    text = cell.ours or "-"
    if not format_mark(cell) or cell.comparison is None:
        return text
    holm = cell.comparison.holm
    return f"{text} {format_mark(cell)}" + (f" {survives}" if holm is not None and holm < ALPHA else "")


def format_cell(cell: Cell) -> str:
    """Ours with its mark, the paper's in brackets with its verdict."""
    text = format_marked_cell(cell, "(Holm)")
    if cell.published:
        text += (
            f" [{format_published(cell)}{' ' + VERDICT_SIGNS[cell.verdict] if VERDICT_SIGNS[cell.verdict] else ''}]"
        )
    return text


def format_published(cell: Cell) -> str:
    """The paper's cell; of another encoder, named."""
    if cell.published is None:
        return ""
    foreign = cell.why.startswith("the paper's cell is")
    return f"{cell.published} {cell.published_of}" if foreign else cell.published


def format_run_states(report: Report) -> str:
    """How many runs are in which state."""
    return f"{sum(report.state.values())} runs: " + ", ".join(f"{n} {name}" for name, n in report.state.items()) + "."


def describe_scale(report: Report) -> list[str]:
    """The sentence on the setting, none where it is the paper's."""
    return [f"Not the paper's setting: {'; '.join(report.scale)}."] if report.scale else []


def escape_markdown(text: str) -> str:
    """Text that neither ends a Markdown cell nor starts markup."""
    return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", text.replace("\n", " "))


def escape_latex(text: str) -> str:
    """Text as LaTeX sets it, in ASCII: what pdflatex can't take becomes its nearest letter, or its name."""
    return "".join(LATEX_ESCAPES.get(character) or to_ascii(character) for character in " ".join(text.split()))


def escape_latex_comment(text: str) -> str:
    """Text that stays within a LaTeX comment: one line of ASCII."""
    return "".join(map(to_ascii, " ".join(text.split())))


def to_ascii(character: str) -> str:
    """A character without its accents; a Greek letter's name; else a question mark."""
    if character.isascii():
        return character if character.isprintable() else "?"
    plain = unicodedata.normalize("NFKD", character)
    plain = "".join(part for part in plain if not unicodedata.combining(part))
    name = unicodedata.name(plain[0], "") if plain else ""
    if found := re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)( SIGN)?", name):
        return found[2].lower() if found[1] == "SMALL" else found[2].capitalize()
    return plain if plain and all(part.isalnum() and part.isascii() for part in plain) else "?"
