"""Write print, ours and their difference, for every cell that both have: part of the pages of results."""

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import t

from isobench.common.plots import PALETTE, make_panels
from isobench.papers.published import PublishedTable
from isobench.report.build import Report
from isobench.report.cells import find_content
from isobench.report.methods import list_score_cells, name_method
from isobench.report.output.templating import escape_markdown
from isobench.report.printed import find_printed_sd
from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR, label_method
from isobench.report.wording import format_interval, format_p_value
from isobench.statistics.seeds import Arm, Arms, Comparison, compare_runs, find_welch_error

WIDEST = 50  # points from zero that a figure shows
OURS_NOTE = "Ours: with the 95% interval over seeds of the t-test whose p stands beside, without a correction."
PRINT_NOTE = "Print: with Welch's, from its SDs over all its seeds, failed ones too."
MEDIANS_NOTE = "Print's gains are of its medians, ours of means."
# Cells that print and another encoder's runs share: paper, table, methods, and why.
COMPARABLE = [
    (
        "isotropy_calibration", "table4", ("none", "cosine", "flow"),
        "a head starts alike whatever the encoder. Training hardly moves plain's and the flow's, so that they agree "
        "shows the start and the size of the head. Cosine's rows compare our strength with one that print doesn't "
        "state. I1 and I2 have the form that we infer (errata.md, 19), and print's flow is BERT's",
    )
]  # fmt: skip


@dataclass(frozen=True)
class Gain:
    """Hold what a method gains over plain fine-tuning on a task, or on the mean of several, printed and ours."""

    method: str
    columns: tuple[str, ...]
    printed: float  # NaN where print has no number
    spreads: list[tuple[float, int]]  # SD and seeds of print's rows, plain's too; empty where it has none
    printed_of: str
    encoder: str
    arms: list[Arms]  # our scores and plain's, a pair a column
    constant: int  # runs that predict one class, of all
    runs: int

    @cached_property
    def ours(self) -> Comparison:
        """Compare our runs with plain's; NaN if a score is not defined."""
        return compare_runs(self.arms)

    def find_printed_interval(self) -> tuple[float, float]:
        """Return Welch's 95% interval of print's gain over the seeds of all its rows; NaN without their spreads."""
        half = _compute_welch_margin(self.spreads) / len(self.columns)
        return self.printed - half, self.printed + half

    def format_ours(self) -> str:
        """Write ours with its interval and encoder, and how many runs predict one class if any does."""
        constant = f", {self.constant} of {self.runs} runs predict one class" if self.constant else ""
        return f"{_format_gain(self.ours.value, self.ours.low, self.ours.high)} ({self.encoder}){constant}"


def _format_gain(value: float, low: float, high: float) -> str:
    return "NaN" if math.isnan(value) else format_interval(value, low, high)


def list_gains(report: Report) -> list[Gain]:
    """List the gains that both print and the runs have: each method's tasks, then their mean."""
    scores, gains = list_score_cells(report.cells), []
    plain = {(cell.group, cell.column): cell for cell in scores[scores["method"] == BASE_METHOD].itertuples()}
    for row in report.methods[report.methods["method"] != BASE_METHOD].itertuples():
        name, own = name_method(report.methods, row), []
        for cell in scores[(scores["method"] == row.method) & (scores["group"] == row.group)].itertuples():
            base = plain.get((cell.group, cell.column))
            if cell.published is None or base is None or min(len(cell.values), len(base.values)) < 2:
                continue  # one run says nothing of chance
            printed = cell.published_difference, _find_printed_spreads(report, cell), cell.published_of
            arms = [(Arm(cell.values, cell.seeds), Arm(base.values, base.seeds))]
            constant = cell.troubles.count(CONSTANT_PREDICTOR)
            own.append(Gain(name, (cell.column,), *printed, cell.encoder, arms, constant, len(cell.seeds)))
        gains += [*own, *_average_gains(own)]
    return gains


def _average_gains(gains: Sequence[Gain]) -> list[Gain]:
    """Average a method's gains over the tasks that have ended, those with its most seeds; none of a single task."""
    most = max((gain.runs for gain in gains), default=0)
    ended = [gain for gain in gains if gain.runs == most and not math.isnan(gain.ours.value)]
    if len(ended) < 2 or len({gain.printed_of for gain in ended}) > 1:
        return []
    is_spread = all(gain.spreads for gain in ended)
    mean = replace(
        ended[0],
        columns=tuple(gain.columns[0] for gain in ended),
        printed=statistics.fmean(gain.printed for gain in ended),
        spreads=[spread for gain in ended for spread in gain.spreads] if is_spread else [],
        arms=[gain.arms[0] for gain in ended],
        constant=sum(gain.constant for gain in ended),
        runs=sum(gain.runs for gain in ended),
    )
    return [mean]


def find_means(gains: Sequence[Gain]) -> list[Gain]:
    """Find what each method gains over all its tasks: the mean if it has several, which is its last gain."""
    return list({gain.method: gain for gain in gains if not math.isnan(gain.ours.value)}.values())


def describe_gains(gains: Sequence[Gain]) -> str:
    """Name the methods whose mean gain over all their tasks is beyond chance, and those that lack tasks."""
    means = find_means(gains)
    above = _count_methods([gain for gain in means if gain.ours.low > 0])
    below = _count_methods([gain for gain in means if gain.ours.high < 0])
    found = f"above 0 for {above} of {len(means)} methods and below 0 for {below}, without a correction"
    sentences = [f"the 95% interval of a method's mean gain over its tasks is {found}."]
    most = max((gain.columns for gain in means), key=len, default=())
    for columns in dict.fromkeys(gain.columns for gain in means if gain.columns != most):
        names = ", ".join(gain.method for gain in means if gain.columns == columns)
        sentences.append(f"Only {', '.join(columns)}: {names}.")
    return escape_markdown(" ".join(sentences))


def _count_methods(gains: Sequence[Gain]) -> str:
    return f"{len(gains)} ({', '.join(gain.method for gain in gains)})" if gains else "none"


def write_gains(gains: Sequence[Gain]) -> str:
    """Return a table of the gains, with what its intervals are; empty without any."""
    has_spread = any(gain.spreads for gain in gains)
    note = f"{OURS_NOTE} {PRINT_NOTE if has_spread else MEDIANS_NOTE}"
    return f"{tabulate_gains(gains)}\n\n{note}" if gains else ""


def tabulate_gains(gains: Sequence[Gain]) -> str:
    """Return a table of the gains."""
    lines = ["| gain over plain, in points | print | ours | p |", "|---|---|---|---|"]
    for gain in gains:
        printed = _format_gain(gain.printed, *gain.find_printed_interval())
        p = format_p_value(gain.ours.p)
        name = f"{gain.method}, {'mean of ' * (len(gain.columns) > 1)}{', '.join(gain.columns)}"
        name, printed, ours = map(escape_markdown, (name, printed, gain.format_ours()))
        lines.append(f"| {name} | {printed} ({gain.printed_of}) | {ours} | {p} |")
    return "\n".join(lines)


def _find_printed_spreads(report: Report, cell: pd.Series) -> list[tuple[float, int]]:
    """Return the SD and seeds of a method's row and of plain's; empty unless print has both with their means."""
    content = find_content(report.experiment, cell.table)
    rows = [_find_printed(content, cell, method) for method in (cell.method, BASE_METHOD)]
    if any(None in (row.get("mean"), row.get("sd")) for row in rows):
        return []
    return [(row["sd"], _count_printed_seeds(content)) for row in rows]


def _find_printed(content: PublishedTable, cell: pd.Series, method: str) -> dict[str, Any]:
    """Find a method's numbers in a cell's row and column by their statistic, SDs by n - 1; none if print has none."""
    printed = content.cells[cell.published_of].get(content.methods.get(method, ""), {})
    columns = [name for name in printed if cell.column in (name, f"{name} ({cell.task})")]
    numbers = dict(zip(content.form, printed[columns[0]], strict=True)) if columns else {}
    if "population_sd" in numbers:
        numbers["sd"] = find_printed_sd(numbers, _count_printed_seeds(content))
    return numbers


def _count_printed_seeds(content: PublishedTable) -> int:
    (seeds,) = map(int, re.findall(r"of (\d+) seeds", content.what))
    return seeds


def _compute_welch_margin(spreads: Sequence[tuple[float, int]]) -> float:
    """Compute half of Welch's 95% interval of a sum of means, some less others; NaN if nothing varies.

    ``spreads``: the SD and the number of seeds of each.
    """
    error, freedom = find_welch_error([(float(sd) ** 2, seeds) for sd, seeds in spreads])
    return t.ppf(0.975, freedom) * error


def draw_gains(gains: Sequence[Gain]) -> Figure:
    """Draw what each method gains over plain fine-tuning on each task, in print and here: a panel a method."""
    gains = [gain for gain in gains if len(gain.columns) == 1]
    tasks = list(dict.fromkeys(gain.columns[0] for gain in gains))[::-1]
    names = list(dict.fromkeys(gain.method for gain in gains))
    figure, axes = make_panels(1, max(len(names), 2), 0.8 + 0.3 * len(tasks), sharex=True, sharey=True)
    panels = dict(zip(names, axes[0], strict=False))
    for gain in gains:
        axis, place = panels[gain.method], tasks.index(gain.columns[0])
        axis.plot(gain.find_printed_interval(), [place + 0.15] * 2, color=PALETTE[1])
        axis.plot(gain.printed, place + 0.15, "s", color=PALETTE[1], markersize=4)
        if math.isnan(gain.ours.value):
            continue
        axis.plot([gain.ours.low, gain.ours.high], [place - 0.15] * 2, color=PALETTE[0])
        inside = "white" if gain.constant else PALETTE[0]
        axis.plot(gain.ours.value, place - 0.15, "o", color=PALETTE[0], mfc=inside, markersize=4)
    for name, axis in panels.items():
        axis.axvline(0, color="0.5", linewidth=0.8)
        axis.set_title(name)
    for axis in axes[0, len(names) :]:
        axis.remove()
    left, right = axes[0, 0].get_xlim()
    axes[0, 0].set_xlim(max(left, -WIDEST), min(right, WIDEST))  # an interval of failed seeds may leave the figure
    axes[0, 0].set_yticks(range(len(tasks)), tasks)
    about = "points over plain with 95% interval (blue: ours, hollow if runs predict one class; orange: print)"
    figure.supxlabel(about, fontsize=8)
    return figure


def write_beside_print(report: Report) -> tuple[str, str]:
    """Return a table with a row for each cell that the paper and these runs have, and one of the comparable cells.

    Each is empty if there is no such cell.
    """
    cells = report.cells[
        (report.cells["n"] > 0) & report.cells["published"].notna() & (report.cells["kind"] != "time")
    ]
    lines, comparable, notes = [], [], set()
    for cell in cells.itertuples():
        shared = [
            why
            for paper, table, methods, why in COMPARABLE
            if (paper, table) == (report.experiment.paper, cell.table) and cell.method in methods
        ]
        notes.update(shared)
        name = f"{cell.column}, {label_method(cell.method)}"
        difference = _format_difference(find_content(report.experiment, cell.table), cell)
        numbers = f"{cell.published} ({cell.published_of}) | {cell.ours} | {difference} |"
        if cell.method.endswith("_found") and cell.kind != "score":  # isotropy_calibration/laptop.md
            why = "not fitted" if cell.task == "stsb" else "fitted to print"
        elif shared or cell.verdict != "not comparable":
            comparable.append(f"| {name} | {numbers}")
            name, why = f"**{name}**", "**comparable**"
        else:
            why = cell.why if cell.published_of == cell.encoder else "another encoder"
        lines.append(f"| {name} | {numbers} {why} |")
    note = "Differences are ours less print."
    if any("\\[" in line for line in lines):
        note += " Their intervals are Welch's (95%) over the seeds of both, half a unit of print's last digit wider."
    note = " ".join([note, *(f"Comparable: {why}." for why in sorted(notes))])
    head = ["| cell | print | ours | difference |", "|---|---|---|---|"]
    return (
        "\n".join([f"{head[0]} |", f"{head[1]}---|", *lines, "", note]) if lines else "",
        "\n".join([*head, *comparable, "", note]) if comparable else "",
    )


def _format_difference(content: PublishedTable, cell: pd.Series) -> str:
    """Write the difference of means, or of medians where print has no mean, and its interval if spreads are known."""
    numbers = _find_printed(content, cell, cell.method)
    center = numbers.get("mean", numbers.get("median"))
    ours = cell.mean if "mean" in numbers else statistics.median(cell.values)
    if center is None or math.isnan(center) or math.isnan(ours):
        return "-"
    difference = ours - float(center)
    form = "+z.2f" if cell.kind == "score" else "+z.3f" if max(abs(center), abs(ours)) >= 0.01 else "+.1e"
    text = f"{difference:{form}}"
    spread = numbers.get("sd")
    if spread is None or cell.n < 2 or "mean" not in numbers:  # Welch's interval is of means
        return text
    margin = _compute_welch_margin([(cell.sd, cell.n), (spread, _count_printed_seeds(content))])
    if math.isnan(margin):
        return text
    # A printed number may be off by half a unit of its last digit, which is most of the spread where it prints 0.
    unit = 10.0 ** -len(str(center).partition(".")[2])
    half = margin + unit / 2
    return f"{text} \\[{difference - half:{form}}, {difference + half:{form}}\\]"
