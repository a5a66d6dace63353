"""Lay out a sweep's lines as text tables that fit the terminal: no number is cut, and no word is broken."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from isobench.report.sweep_lines import FIGURES, NOTHING, SweepLine, list_seed_scores

OMITTED_FIRST = ("time", "IsoScore", "n", "SD", "EV_1", "change")  # figures that a very narrow terminal does not show


@dataclass(frozen=True)
class Layout:
    """Choose how to lay out the lines.

    Attributes:
        has_sections: True for one table per place (such as a task), under its name; False for columns of places.
        is_merged: True if method and settings share one column, which breaks its texts between words.
        gap: the number of spaces between columns.
    """

    has_sections: bool
    is_merged: bool
    gap: int


LAYOUTS = (Layout(False, False, 2), Layout(True, False, 2), Layout(True, False, 1), Layout(True, True, 1))


@dataclass
class Section:
    """Hold a table as text: its name, empty if it is the only table, and its lines, beginning with the headings."""

    name: str
    texts: list[str]


@dataclass
class LaidOutLines:
    """Hold the tables of a sweep's lines.

    Attributes:
        sections: the tables, one for each place; a single one if places have columns or don't vary.
        has_seeds: True if the tables show every seed's score.
        omitted: the figures left out because the terminal is too narrow.
    """

    sections: list[Section]
    has_seeds: bool
    omitted: list[str]


def lay_out_lines(lines: Sequence[SweepLine], width: int, rule: str = "-") -> LaidOutLines:
    """Lay out the lines of a sweep's table in the first of ``LAYOUTS`` that fits.

    Figures that no line has are left out, such as SD with one seed. A column shows every seed's score if it fits.

    Args:
        lines: the lines, at least one.
        width: of the terminal, in characters. A line is longer only if a single word is.
        rule: the character of the line below the headings.
    """
    figures = [name for name in FIGURES if any(line.figures[name] != NOTHING for line in lines)]
    omitted: list[str] = []
    while True:
        for layout in LAYOUTS:
            grid = Grid(lines, layout, figures)
            if grid.least_width <= width:
                wider = Grid(lines, layout, figures, with_seeds=True)
                has_seeds = not layout.is_merged and wider.least_width <= width
                return LaidOutLines(list((wider if has_seeds else grid).format(width, rule)), has_seeds, omitted)
        dispensable = [name for name in OMITTED_FIRST if name in figures]
        if not dispensable:
            return LaidOutLines(list(grid.format(width, rule)), False, omitted)
        figures.remove(dispensable[0])
        omitted.append(dispensable[0])


def find_varying_place(lines: Sequence[SweepLine]) -> list[str]:
    """Find the headings of the places in which lines differ, such as ``task``."""
    return [name for name in lines[0].place if len({line.place[name] for line in lines}) > 1]


def format_place(line: SweepLine, headings: Sequence[str]) -> str:
    """Write a line's place: task and encoder by their names, other parts as ``head=isobn``."""
    texts = [line.place[name] if name in ("task", "encoder") else f"{name}={line.place[name]}" for name in headings]
    return ", ".join(texts)


@dataclass
class Column:
    """Hold a column of the table: its heading, a cell for each line, and whether to align these to the right."""

    heading: str
    cells: list[str]
    is_figure: bool = False

    @property
    def width(self) -> int:
        """Return the number of characters of the longest text."""
        return max(map(len, [self.heading, *self.cells]))


class Grid:
    """Arrange the cells of a sweep's lines in one layout.

    Args:
        lines: the lines.
        layout: how to lay them out.
        figures: the numbers to show.
        with_seeds: also show every seed's score.
    """

    def __init__(
        self, lines: Sequence[SweepLine], layout: Layout, figures: Sequence[str], with_seeds: bool = False
    ) -> None:
        self.lines, self.gap = lines, " " * layout.gap
        place = find_varying_place(lines)
        self.section_headings = place if layout.has_sections else []
        columns = [Column(name, [line.place[name] for line in lines]) for name in place if not layout.has_sections]
        self.method_index = len(columns)
        columns.append(Column("method", [line.name() if layout.is_merged else line.method for line in lines]))
        if not layout.is_merged:
            columns += [Column(name, [line.settings[name] for line in lines]) for name in lines[0].settings]
        columns += [Column(name, [line.figures[name] for line in lines], True) for name in figures]
        if with_seeds:
            columns.append(Column(*list_seed_scores(lines)))
        self.columns = columns
        self.widths = [column.width for column in columns]
        full, gaps = self.widths[self.method_index], layout.gap * (len(columns) - 1)
        words = [word for text in ["method", *columns[self.method_index].cells] for word in text.split()]
        self.least_method_width = max(map(len, words)) if layout.is_merged else full
        self.full_width = sum(self.widths) + gaps
        self.least_width = self.full_width - full + self.least_method_width  # in which no word is broken

    def format(self, width: int, rule: str) -> Iterator[Section]:
        """Format the tables; ``width`` and ``rule`` as for `lay_out_lines`."""
        missing = self.full_width - max(width, self.least_width)
        self.widths[self.method_index] -= max(0, missing)
        headings = [self._format_row([column.heading for column in self.columns])]
        headings.append(rule * (self.full_width - max(0, missing)))
        numbers_by_section: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines):
            numbers_by_section.setdefault(format_place(line, self.section_headings), []).append(number)
        for name, numbers in numbers_by_section.items():
            yield Section(name, headings + [text for number in numbers for text in self._format_line(number)])

    def _format_line(self, number: int) -> list[str]:
        """Format a line of the table; a method's text that is wider than its column continues on the next line."""
        cells = [column.cells[number] for column in self.columns]
        method_width = self.widths[self.method_index]
        cells[self.method_index], *rest = textwrap.wrap(
            cells[self.method_index],
            method_width,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        return [self._format_row(cells), *rest]

    def _format_row(self, cells: Sequence[str]) -> str:
        """Format one line of cells."""
        texts = [
            cell.rjust(width) if column.is_figure else cell.ljust(width)
            for cell, column, width in zip(cells, self.columns, self.widths, strict=True)
        ]
        return self.gap.join(texts).rstrip()
