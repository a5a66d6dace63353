"""Lay out the page's first table: the content of each column, and the positions of intervals and seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from isobench.report.document import Cell, ConfigurationLine, OverviewLine
from isobench.report.page_data import Axis, StripPlot, build_axis, build_strip_plot
from isobench.statistics.resampling import bootstrap_coverage

MAX_CONFIGURATIONS = 200  # lines of the table of configurations


@dataclass(frozen=True)
class EffectBar:
    """Place a difference from plain fine-tuning on the axis that all methods share, at positions from 0 to 100.

    Attributes:
        value: position of the difference.
        low: position of its interval's lower end; None without an interval.
        high: position of the upper end.
        side: better, worse, or empty if chance may explain the difference.
    """

    value: float
    low: float | None
    high: float | None
    side: str


@dataclass
class OverviewTable:
    """Hold what the page's first table shows.

    Attributes:
        groups: encoder and part -> its lines.
        bars: drawings of the differences, by line; empty if no method can be compared.
        strips: drawings of the seeds, by line; empty if the lines show several columns of scores.
        effect_axis: the range of the differences, including zero; None without differences.
        seed_axis: the range of the seeds' scores; None without strips.
        columns: the different columns of scores that the lines show.
        has_p: True if any difference was tested.
        has_isotropy: True if any line has an isotropy.
        has_time: True if any line has a time.
    """

    groups: dict[str, list[OverviewLine]]
    bars: dict[int, EffectBar] = field(default_factory=dict)
    strips: dict[int, StripPlot] = field(default_factory=dict)
    effect_axis: Axis | None = None
    seed_axis: Axis | None = None
    columns: list[list[str]] = field(default_factory=list)
    has_p: bool = False
    has_isotropy: bool = False
    has_time: bool = False

    @property
    def zero(self) -> float:
        """Return the position of zero on the axis of differences."""
        return self.effect_axis.place(0.0) if self.effect_axis else 0.0

    @property
    def tested_methods(self) -> int:
        """Return the number of methods that were tested against plain fine-tuning."""
        return sum(line.p is not None for own in self.groups.values() for line in own)

    @property
    def coverage(self) -> float:
        """Return the highest share of bootstrap intervals that hold the true value, for the fewest tested seeds."""
        tested = [line.fewest_seeds for own in self.groups.values() for line in own if line.fewest_seeds]
        return bootstrap_coverage(min(tested)) if tested else 1.0

    @property
    def width(self) -> int:
        """Return the number of columns."""
        drawn = (self.seed_axis is not None) + 2 * (self.effect_axis is not None)
        return 2 + drawn + self.has_p + 2 * self.has_isotropy + self.has_time

    def list_facts(self) -> list[str]:
        """List facts about the whole table: the encoder and part if there is only one, and the numbers of seeds."""
        lines = [line for own in self.groups.values() for line in own]
        seeds = describe_seed_counts([count for line in lines for count in line.seeds])
        return [*(self.groups if len(self.groups) == 1 else ()), *filter(None, [seeds])]

    def find_bar(self, line: OverviewLine) -> EffectBar | None:
        """Return the drawing of a line's difference; None without one."""
        return self.bars.get(id(line))

    def find_strip(self, line: OverviewLine) -> StripPlot | None:
        """Return the drawing of a line's seeds; None without one."""
        return self.strips.get(id(line))


def lay_out_overview(lines: Sequence[OverviewLine]) -> OverviewTable:
    """Lay out the table of these lines."""
    groups: dict[str, list[OverviewLine]] = {}
    for line in lines:
        groups.setdefault(line.group, []).append(line)
    table = OverviewTable(
        groups=groups,
        columns=[list(columns) for columns in dict.fromkeys(tuple(line.columns) for line in lines)],
        has_p=any(line.p is not None for line in lines),
        has_isotropy=any(line.ev1 is not None or line.isoscore is not None for line in lines),
        has_time=any(line.time for line in lines),
    )
    table.effect_axis = find_effect_axis(lines)
    if axis := table.effect_axis:
        table.bars = {id(line): bar for line in lines if (bar := build_effect_bar(line, axis))}
    if len(table.columns) == 1:
        seeds = [(line, Cell(line.cell.values, line.cell.seeds)) for line in lines if line.cell]
        table.seed_axis = build_axis([own for _, own in seeds])
    if table.seed_axis:
        table.strips = {id(line): build_strip_plot(own, table.seed_axis) for line, own in seeds}
    return table


def find_effect_axis(lines: Sequence[OverviewLine]) -> Axis | None:
    """Find the range of all differences and their intervals, including zero; None if all of them are zero."""
    ends = [0.0]
    for line in lines:
        if line.difference:
            ends += [end for end in line.difference if math.isfinite(end)]
    return Axis(min(ends), max(ends)) if min(ends) < max(ends) else None


def build_effect_bar(line: OverviewLine, axis: Axis) -> EffectBar | None:
    """Place a line's difference on the axis; None if the line has no difference."""
    if line.difference is None:
        return None
    value, low, high = line.difference
    side = ("better" if value > 0 else "worse") if line.is_shown else ""
    if math.isnan(low) or math.isnan(high):
        return EffectBar(axis.place(value), None, None, side)
    return EffectBar(axis.place(value), axis.place(low), axis.place(high), side)


@dataclass
class ConfigurationTable:
    """Hold the configurations that were tried for one encoder and task.

    Attributes:
        title: names the encoder and the task.
        lines: each configuration with the drawing of its seeds.
        axis: the range of the seeds' scores; None without a score.
    """

    title: str
    lines: list[tuple[ConfigurationLine, StripPlot | None]]
    axis: Axis | None


def lay_out_configurations(lines: Sequence[ConfigurationLine]) -> list[ConfigurationTable]:
    """Lay out the tables of the first ``MAX_CONFIGURATIONS`` configurations."""
    groups: dict[str, list[ConfigurationLine]] = {}
    for line in lines[:MAX_CONFIGURATIONS]:
        groups.setdefault(f"{line.task}, {line.group}", []).append(line)
    tables = []
    for title, own in groups.items():
        axis = build_axis([line.cell for line in own])
        strips: list[StripPlot | None] = [build_strip_plot(line.cell, axis) if axis else None for line in own]
        tables.append(ConfigurationTable(title, list(zip(own, strips, strict=True)), axis))
    return tables


def describe_seed_counts(counts: Sequence[int]) -> str:
    """Write numbers of seeds: ``5 seeds each``, or ``2 to 5 seeds``; empty without numbers."""
    counts = [count for count in counts if count]
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f"{low} to {high} seeds" if low < high else f"{low} seed{'s' if low > 1 else ''} each"
