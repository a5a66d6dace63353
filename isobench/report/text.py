"""A report as Markdown and as LaTeX."""

import re
import unicodedata

from isobench.report.model import Cell, Line, Report, ReportTable
from isobench.report.paper_table import ALPHA, BASE

SYMBOLS = {"within": "=", "above": "+", "below": "-", "not comparable": "", "": ""}
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "†": r"$\dagger$", "<": r"$<$", ">": r"$>$",
    "\N{MINUS SIGN}": r"$-$", "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{EN DASH}": "--",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
}  # fmt: skip
WIDE = 5  # columns that still fit a page
MEANS = f"* better, † worse than {BASE}: p < {ALPHA} (Welch's t-test over seeds, not corrected)"


def markdown(report: Report) -> str:
    """The whole report, tables as pipes."""
    parts = [f"# {report.experiment}", state(report), *(f"**{line}**" for line in scale(report))]
    parts += ["## What the runs support", "\n".join(f"- {pipe(sentence)}" for sentence in report.evidence)]
    for table in report.tables:
        has_marks = any(mark(cell) for line in table.lines for cell in line.cells.values())
        parts += [f"## {pipe(table.title)}", markdown_table(table)]
        if has_marks and not any(note.startswith("* better") for note in table.notes):  # a note may say it already
            parts += [pipe(f"{MEANS}; (Holm): still so after Holm's correction.")]
        parts += ["\n".join(f"- {pipe(n)}" for n in table.notes)]
    parts += [f"Selection: {report.selection}"]
    for title, lines in (("Failures", report.failures), ("Notes", report.notes)):
        if lines:
            parts += [f"## {title}", "\n".join(f"- {pipe(line)}" for line in lines)]
    parts += ["## Provenance", "\n".join(f"- {name}: {pipe(value)}" for name, value in report.provenance.items())]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(table: ReportTable) -> str:
    """A table as pipes: ours with its mark, the paper's in brackets with = + - for within, above, below."""
    head = ["encoder", "method", *table.columns, "training time"]
    lines = []
    for line in table.lines:
        cells = (cell_text(line.cells[column]) for column in table.columns)
        lines.append([line.encoder, named(line), *cells, line.time])
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(pipe, row)) + " |" for row in rows)


def latex(report: Report) -> str:
    """Every table in booktabs form; needs the packages booktabs and, for wide ones, graphicx."""
    needs = r"\usepackage{booktabs} and \usepackage{graphicx}"
    parts = [f"% {comment(report.experiment)}: made by isobench; needs {needs}"]
    parts += [latex_table(table, caption(report, table)) for table in report.tables]
    return "\n\n".join(parts) + "\n"


def latex_table(table: ReportTable, said: str) -> str:
    """One table; the published cell stands below ours."""
    head = ["encoder", "method", *table.columns]
    rows = []
    for line in table.lines:
        cells = [line.cells[column] for column in table.columns]
        rows.append([line.encoder, named(line), *(marked(cell, "Holm") for cell in cells)])
        if any(cell.published for cell in cells):
            rows.append(["", "published", *(printed(cell) or "" for cell in cells)])
    tabular = [
        rf"\begin{{tabular}}{{ll{'r' * len(table.columns)}}}",
        r"\toprule",
        row_of(head),
        r"\midrule",
        *map(row_of, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if len(table.columns) > WIDE:
        tabular = [r"\resizebox{\linewidth}{!}{%", *tabular[:-1], tabular[-1] + "}"]
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{tex(said)}}}", *tabular, r"\end{table}"]
    return "\n".join(lines)


def row_of(texts: list[str]) -> str:
    """A line of a LaTeX table; the first cell must not look like the argument of the line break before."""
    return " & ".join("{}" + tex(text) if text.startswith("[") else tex(text) for text in texts) + r" \\"


def caption(report: Report, table: ReportTable) -> str:
    """What a table shows: whose numbers, of how many seeds, what the marks mean, how they were selected."""
    cells = [cell for line in table.lines for cell in line.cells.values()]
    name = f"{report.experiment}, {table.name}" if table.name else report.experiment
    said = [f"{name}; our runs{seeds(cells)}"]
    if any(cell.published for cell in cells):
        said[0] += "; the paper's cell below ours"
    if any(mark(cell) for cell in cells):
        said.append(f"{MEANS}; Holm: still so after Holm's correction")
    if report.selection:
        said.append(f"Selection: {report.selection}")
    return " ".join(f"{sentence.rstrip('.')}." for sentence in [*said, *scale(report)])


def seeds(cells: list[Cell]) -> str:
    """How many seeds the cells are of; nothing where no cell has one."""
    counts = [len(cell.values) for cell in cells if cell.values]
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f", {low} to {high} seeds a cell" if low < high else f", {low} seed{'s' if low > 1 else ''} a cell"


def named(line: Line) -> str:
    """The method, with the configuration chosen for it where there was a choice."""
    return f"{line.method} ({line.settings})" if line.settings else line.method


def mark(cell: Cell | None) -> str:
    """* for significantly better than plain fine-tuning, † for worse, before correction."""
    found = cell.comparison if cell else None
    if found is None or found.welch is None or found.welch >= ALPHA:
        return ""
    return "*" if found.difference > 0 else "†"


def marked(cell: Cell, survives: str) -> str:
    """Ours with its mark, and with the word for what Holm's correction leaves."""
    text = cell.ours or "-"
    if not mark(cell) or cell.comparison is None:
        return text
    holm = cell.comparison.holm
    return f"{text} {mark(cell)}" + (f" {survives}" if holm is not None and holm < ALPHA else "")


def cell_text(cell: Cell) -> str:
    """Ours with its mark, the paper's in brackets with its verdict."""
    text = marked(cell, "(Holm)")
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
    """Text as LaTeX sets it, in ASCII: what pdflatex can't take becomes its nearest letter, or its name."""
    return "".join(LATEX.get(character) or ascii_of(character) for character in " ".join(text.split()))


def comment(text: str) -> str:
    """Text that stays within a LaTeX comment: one line of ASCII."""
    return "".join(map(ascii_of, " ".join(text.split())))


def ascii_of(character: str) -> str:
    """A character without its accents; a Greek letter's name; else a question mark."""
    if character.isascii():
        return character if character.isprintable() else "?"
    plain = unicodedata.normalize("NFKD", character)
    plain = "".join(part for part in plain if not unicodedata.combining(part))
    name = unicodedata.name(plain[0], "") if plain else ""
    if found := re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)( SIGN)?", name):
        return found[2].lower() if found[1] == "SMALL" else found[2].capitalize()
    return plain if plain and all(part.isalnum() and part.isascii() for part in plain) else "?"
