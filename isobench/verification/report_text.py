"""Compare a report's text that another version of isobench wrote with the text that this version makes.

Another version may use other words, so only what a table says is compared: names, signed numbers and marks.
"""

import re
from collections import Counter
from html.parser import HTMLParser

NUMBER = re.compile(r"[-\u2212+]?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
TABLE_TOKEN = re.compile(rf"{NUMBER.pattern}|[*†]")
# What makes a page load or run something; a link within the page begins with "#".
ACTIVE = re.compile(
    r"<\s*(?:script|iframe|frame|object|embed|form|base|link|meta|foreignobject|animate|set)\b[^>]*"
    r"|[\s\"'/]on[a-z]+\s*=[^>]*"
    r"|\b(?:src|href|srcset|srcdoc|action|formaction|data|background|poster)\s*=\s*[\"']?(?!#)[^\s>]*"
    r"|@import|url\([^)]*",
    re.IGNORECASE,
)
MAX_TEXT = 80  # characters of a line that a message shows

Table = list[tuple[str, ...]]  # rows of cells


def find_text_difference(stored: bytes, expected: bytes) -> str:
    """Say in which line a text differs first, and what should be there."""
    ours, theirs = decode(expected).splitlines(), decode(stored).splitlines()
    for number, (own, other) in enumerate(zip(ours, theirs, strict=False), 1):
        if own != other:
            start = next((i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b), 0)
            start = max(0, start - MAX_TEXT // 4)
            part = slice(start, start + MAX_TEXT)
            return f"line {number} has {other[part]!r}, and the records give {own[part]!r}"
    return f"it has {len(theirs)} lines, and the records give {len(ours)}"


def find_forged_content(name: str, stored: bytes, expected: bytes) -> str | None:
    """Return what in another version's text no report of these records can say or do; None if there is nothing.

    Args:
        name: the file's name, whose ending tells the kind of text.
        stored: the text that lies in the folder.
        expected: the text that this version makes of the records.
    """
    if problem := find_active_part(stored, expected):
        return problem
    theirs, ours = read_tables(name, stored), read_tables(name, expected)
    if problem := find_row_difference(theirs, ours):
        return problem
    if added := count_matches(NUMBER, stored) - count_matches(NUMBER, expected):
        return f"it has the number {next(iter(added))[:MAX_TEXT]}, which the records do not give"
    return None


def find_active_part(stored: bytes, expected: bytes) -> str | None:
    """Return what in a text can load or run something and is not in the expected text; None if there is nothing."""
    added = count_matches(ACTIVE, stored) - count_matches(ACTIVE, expected)
    return f"it can load or run something: {next(iter(added))[:MAX_TEXT]!r}" if added else None


def find_row_difference(stored: list[Table], expected: list[Table]) -> str | None:
    """Return the first row of the tables that differs; None if all are equal."""
    for number, (theirs, ours) in enumerate(zip(stored, expected, strict=False), 1):
        for row, (other, own) in enumerate(zip(theirs, ours, strict=False), 1):
            if other != own:
                told = [" | ".join(cells)[:MAX_TEXT] for cells in (other, own)]
                return f"row {row} of table {number} has {told[0]!r}, and the records give {told[1]!r}"
        if len(theirs) != len(ours):
            return f"table {number} has {len(theirs)} rows, and the records give {len(ours)}"
    if len(stored) != len(expected):
        return f"it has {len(stored)} tables, and the records give {len(expected)}"
    return None


def find_lost_table(stored: list[Table], expected: list[Table]) -> str | None:
    """Return the first expected table, in words, that is not among the stored ones in this order; None if all are."""
    rest = iter(stored)
    for table in expected:
        if table not in rest:
            return f"it lacks the table that begins with {' | '.join(table[0])[:MAX_TEXT]!r}, or tells it otherwise"
    return None


def read_tables(name: str, text: bytes) -> list[Table]:
    """Read the tables of a Markdown, LaTeX or HTML text; the file's name has its ending.

    A cell that begins with a number is given by its numbers and marks, any other cell by its words.
    """
    if name.endswith(".html"):
        parser = TableParser()
        parser.feed(decode(text))
        parser.close()
        raw = parser.tables
    else:
        raw = read_lines_of_tables(decode(text), "&" if name.endswith(".tex") else "|")
    return [[tuple(simplify_cell(cell) for cell in row) for row in table] for table in raw]


def read_lines_of_tables(text: str, separator: str) -> list[list[list[str]]]:
    """Read tables whose rows are lines with cells between separators, one that a backslash precedes left out."""
    tables: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        cells = re.split(rf"(?<!\\){re.escape(separator)}", line)
        is_row = line.startswith("|") if separator == "|" else len(cells) > 1
        if not is_row and line != r"\midrule":
            tables.append([])
        elif is_row and set(line) - set("|-: "):
            tables[-1].append(cells)
    return [table for table in tables if table]


class TableParser(HTMLParser):
    """Collects the text of every cell of every table of a page: tables of rows of cells."""

    def __init__(self) -> None:
        """Start with no table."""
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.pieces: list[str] | None = None  # of the open cell's text; the cell is the last one of the last row

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a table, a row or a cell."""
        if tag in ("td", "th", "tr", "table"):
            self.end_cell()
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables and self.tables[-1]:
            self.tables[-1][-1].append("")
            self.pieces = []

    def handle_endtag(self, tag: str) -> None:
        """End a cell; text that follows it belongs to no cell."""
        if tag in ("td", "th", "tr", "table"):
            self.end_cell()

    def handle_data(self, data: str) -> None:
        """Add text to the cell."""
        if self.pieces is not None:
            self.pieces.append(data)

    def end_cell(self) -> None:
        """Write the collected text into the open cell."""
        if self.pieces is not None:
            self.tables[-1][-1][-1] = "".join(self.pieces)
            self.pieces = None

    def close(self) -> None:
        """End the page, and a cell that it left open."""
        super().close()
        self.end_cell()


def simplify_cell(text: str) -> str:
    """Return the numbers and marks of a cell that begins with a number, and otherwise its words in lower case."""
    words = " ".join(text.replace("\\\\", " ").split()).casefold()
    return " ".join(TABLE_TOKEN.findall(words)) if NUMBER.match(words) else words


def count_matches(pattern: re.Pattern[str], text: bytes) -> Counter[str]:
    """Count what a pattern finds in a text."""
    return Counter(match[0] for match in pattern.finditer(decode(text)))


def decode(text: bytes) -> str:
    """Decode UTF-8; what is none is shown as a replacement character."""
    return text.decode(errors="replace")
