"""Write print, ours and their difference, for every cell that both have: part of the pages of results."""

import math
import re
import statistics
from collections.abc import Sequence
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
from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR, label_method
from isobench.report.wording import DASH, format_interval, format_p_value, format_points

WIDEST = 45  # points from zero that a figure shows
GAINS_NOTE = (
    "With 95% intervals over seeds: ours of the t-test whose p stands beside, without a correction; print's Welch's, "
    "from its SDs. Print's failed seeds count in its means; ours that predict one class are left out. Where print "
    "has medians, its gains are of these."
)
# Cells that print and another encoder's runs share: paper, table, methods, and why.
COMPARABLE = [
    (
        "isotropy_calibration", "table4", ("none", "cosine", "flow"),
        "a head starts alike whatever the encoder, and training moves it as the method does (laptop.md). I1 and I2 "
        "have the form that we infer (errata.md, 19), cosine's strength is ours, and print's flow is BERT's",
    )
]  # fmt: skip


def write_gains(report: Report) -> str:
    """Return a table of what each method gains over plain fine-tuning, printed and ours; empty without print."""
    lines = []
    scores = list_score_cells(report.cells)
    for row in report.methods[report.methods["method"] != BASE_METHOD].itertuples():
        name = escape_markdown(name_method(report.methods, row))
        for cell in scores[(scores["method"] == row.method) & (scores["group"] == row.group)].itertuples():
            if cell.published is not None:
                numbers = (cell.published_difference, *_find_printed_interval(report, cell))
                printed = "NaN" if math.isnan(numbers[0]) else escape_markdown(format_interval(*numbers))
                lines.append(
                    f"| {name}, {cell.column} | {printed} ({cell.published_of}) | {_describe_gain(cell)} | "
                    f"{format_p_value(cell.p)} |"
                )
        if len(row.compared) > 1:
            ours = escape_markdown(format_interval(row.difference, row.low, row.high))
            printed = DASH if math.isnan(row.printed) else f"{format_points(row.printed)} ({row.printed_of})"
            name = f"**{name}, mean of {', '.join(row.compared)}**"
            lines.append(f"| {name} | {printed} | {ours} | {format_p_value(row.p)} |")
    head = ["| gain over plain, in points | print | ours | p |", "|---|---|---|---|"]
    return "\n".join([*head, *lines, "", GAINS_NOTE]) if lines else ""


def _describe_gain(cell: pd.Series) -> str:
    if cell.compared:
        return escape_markdown(format_interval(cell.difference, cell.low, cell.high))
    if constant := cell.troubles.count(CONSTANT_PREDICTOR):
        return f"{constant} of {len(cell.seeds) or constant} runs predict one class"
    return "nothing to compare with" if cell.values else "not run"


def _find_printed_interval(report: Report, cell: pd.Series) -> tuple[float, float]:
    """Return Welch's 95% interval of print's gain over the seeds of both rows; NaN where it prints no mean and SD."""
    content = find_content(report.experiment, cell.table)
    rows = [_find_printed(content, cell, method) for method in (cell.method, BASE_METHOD)]
    spreads = [
        (row["sd"], _count_printed_seeds(content)) for row in rows if None not in (row.get("mean"), row.get("sd"))
    ]
    half = _compute_welch_margin(spreads) if len(spreads) == 2 else math.nan
    return cell.published_difference - half, cell.published_difference + half


def _find_printed(content: PublishedTable, cell: pd.Series, method: str) -> dict[str, Any]:
    """Find a method's numbers in the row and column of a cell by the statistic's name; none where print has none."""
    printed = content.cells[cell.published_of].get(content.methods.get(method, ""), {})
    columns = [name for name in printed if cell.column in (name, f"{name} ({cell.task})")]
    return dict(zip(content.form, printed[columns[0]], strict=True)) if columns else {}


def _count_printed_seeds(content: PublishedTable) -> int:
    (seeds,) = map(int, re.findall(r"of (\d+) seeds", content.what))
    return seeds


def _compute_welch_margin(spreads: Sequence[tuple[float, int]]) -> float:
    """Compute half of Welch's 95% interval of a difference of means; NaN if nothing varies.

    ``spreads``: the SD and the number of seeds of both.
    """
    shares = [float(sd) ** 2 / seeds for sd, seeds in spreads]
    if not (error := math.sqrt(sum(shares))):
        return math.nan
    freedom = error**4 / sum(
        share**2 / (seeds - 1) for share, (_, seeds) in zip(shares, spreads, strict=True) if share
    )
    return t.ppf(0.975, freedom) * error


def draw_gains(report: Report) -> Figure | None:
    """Draw what each method gains over plain fine-tuning, in print and here, a panel a method; None without print."""
    scores = list_score_cells(report.cells)
    scores = scores[scores["published_difference"].notna()]
    methods = scores[scores["compared"].astype(bool)].drop_duplicates(["method", "group"])
    if methods.empty:
        return None
    tasks = list(scores["column"].unique())[::-1]
    names = [name_method(report.methods, row) for row in methods.itertuples()]
    figure, axes = make_panels(1, max(len(names), 2), 0.8 + 0.3 * len(tasks), sharex=True, sharey=True)
    for axis, row, name in zip(axes[0], methods.itertuples(), names, strict=False):
        for cell in scores[(scores["method"] == row.method) & (scores["group"] == row.group)].itertuples():
            place = tasks.index(cell.column)
            axis.plot(_find_printed_interval(report, cell), [place + 0.15] * 2, color=PALETTE[1])
            axis.plot(cell.published_difference, place + 0.15, "s", color=PALETTE[1], markersize=4)
            if cell.compared:
                axis.plot([cell.low, cell.high], [place - 0.15] * 2, color=PALETTE[0])
                axis.plot(cell.difference, place - 0.15, "o", color=PALETTE[0], markersize=4)
        axis.axvline(0, color="0.5", linewidth=0.8)
        axis.set_title(name)
    for axis in axes[0, len(names) :]:
        axis.remove()
    left, right = axes[0, 0].get_xlim()
    axes[0, 0].set_xlim(max(left, -WIDEST), min(right, WIDEST))  # an interval of failed seeds may leave the figure
    axes[0, 0].set_yticks(range(len(tasks)), tasks)
    figure.supxlabel("points over plain with 95% interval (blue: ours; orange: print)", fontsize=8)
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
    note = "Differences, ours less print, with Welch's 95% interval over the seeds of both, "
    note += "widened on each side by half a unit of print's last digit."
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
