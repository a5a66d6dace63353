"""Write a report as one HTML page that needs nothing else: no network, no script; light, dark, any width, print."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from isobench.report import figures, page_data, page_figures, page_overview
from isobench.report.analysis_outcome import AnalysisOutcome
from isobench.report.baseline_comparison import BASE_METHOD, MARK_TESTS, label_method
from isobench.report.claims import OUTCOME_SYMBOLS
from isobench.report.document import Cell, Report, ReportTable
from isobench.report.evidence import BASELINE, MIN_COVERAGE
from isobench.report.markdown_latex import format_mark
from isobench.report.page_data import COMPARABLE_VERDICTS
from isobench.report.page_figures import CurveGroup
from isobench.report.page_overview import OverviewTable
from isobench.report.templating import make_environment
from isobench.statistics.seeds import ALPHA, Estimate

__all__ = ["render_claims", "render_report"]

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
VERDICT_SYMBOLS = {"within": "≈", "above": "▲", "below": "▼", "not comparable": DASH}


def render_report(report: Report, outcome: AnalysisOutcome | None = None) -> str:
    """Write the page, with the outcome of an analysis if there is one; equal reports give the same page.

    ``runs`` and ``epochs`` may lack any column and any value, and every part of the report may be empty: the page
    then says what is missing.
    """
    report = page_data.add_part_to_encoder(report)
    methods = [
        *(line.method for table in report.tables for line in table.lines),
        *page_data.list_distinct_values(report.runs, "method"),
        *(str(name) for name in dict.fromkeys(report.epochs.get("method", [])) if name is not None),
    ]
    styles = figures.assign_styles(methods)
    runs_at_epoch = page_data.group_indices(report.epochs, "encoder", "task", "method", "epoch")
    groups = page_data.group_indices(report.epochs, "encoder", "task")
    overview = page_overview.lay_out_overview(report.overview)
    views = [_TableView(table) for table in report.tables]
    shown_views = [view for view in views if not view.repeats(overview)]
    curves = list(page_figures.draw_curve_groups(report.epochs, groups, styles))
    configurations = page_overview.lay_out_configurations(report.configurations)
    return load_template("page.html.j2").render(
        report=report,
        overview=overview,
        facts=overview.list_facts(),
        configurations=configurations,
        max_configurations=page_overview.MAX_CONFIGURATIONS,
        contents=list_contents(overview, configurations, shown_views, curves, outcome),
        outcome=outcome,
        styles=styles,
        total=sum(report.state.values()),
        scales=page_data.list_distinct_values(report.runs, "scale"),
        views=views,
        shown_views=shown_views,
        curves=curves,
        unfinished=sum(count for name, count in report.state.items() if name not in ("done", "failed")),
        curve_groups=len(groups),
        epochs=sum(map(len, groups.values())),
        isotropy=page_figures.IsotropySection.draw(report.runs, styles),
        overheads=page_data.compute_overheads(report.runs),
        tasks=page_data.list_distinct_values(report.runs, "task"),
        limits=page_figures.DRAWING_LIMITS,
        most_runs=max(map(len, runs_at_epoch.values()), default=0),
        several_configs=has_several_configs(report),
    )


def render_claims(claims: list[dict[str, Any]]) -> str:
    """Write the page of the papers' claims, each with its outcome; ``claims``: from ``isobench.cli.claims``."""
    papers: dict[str, list[dict[str, Any]]] = {}
    for claim in claims:
        papers.setdefault(claim["paper"], []).append(claim)
    return load_template("claims.html.j2").render(
        papers=papers,
        counts=Counter(claim["outcome"] for claim in claims),
        scaled=sum(bool(claim["scale"]) for claim in claims),
        SYMBOLS=OUTCOME_SYMBOLS,
    )


def load_template(name: str) -> Template:
    """Load a page's template, with the filters and constants that it uses."""
    environment = make_environment()
    environment.filters |= {
        "words": format_name,
        "label": label_method,
        "p": format_p_value,
        "signed": format_signed,
        "number": format_number,
        "seconds": format_seconds,
        "interval": format_interval,
        "share": format_share,
        "mean_sd": format_mean_and_sd,
        "breakable": make_breakable,
    }
    environment.globals |= {"ALPHA": ALPHA, "BASE": BASELINE, "VERDICTS": VERDICT_SYMBOLS, "mark": format_mark}
    environment.globals |= {"MARK_TESTS": MARK_TESTS, "MIN_COVERAGE": MIN_COVERAGE}
    return environment.get_template(name)


def has_several_configs(report: Report) -> bool:
    """Return True if a method has runs of several configurations.

    A table's line then names the one that was selected, or some runs are in no table.
    """
    is_named = any(line.settings for table in report.tables for line in table.lines)
    return is_named or any(run.get("selected") is False for run in report.runs)


def list_contents(
    overview: OverviewTable,
    configurations: list[Any],
    views: list["_TableView"],
    curves: list[CurveGroup],
    outcome: AnalysisOutcome | None,
) -> list[tuple[str, str]]:
    """List the page's sections below its first table: id and heading of each."""
    sections = {
        "analysis": ("Analysis", outcome is not None),
        "configurations": ("Configurations", bool(configurations)),
        "tables": ("Tables", bool(views or not overview.groups)),
        "training": ("Over training", bool(curves)),
    }
    always = {
        "isotropy": "Isotropy and score", "cost": "Time and memory", "statistics": "Statistics",
        "failures": "Failures", "selection": "Selection", "provenance": "Provenance", "files": "Raw files",
    }  # fmt: skip
    return [*((name, heading) for name, (heading, is_there) in sections.items() if is_there), *always.items()]


class _TableView:
    """Hold a table and what the page adds: numbered reasons, a list of comparisons, plots of every cell's seeds.

    Cells have verdicts if at least one can be compared with the paper; otherwise one sentence says why none can.
    """

    def __init__(self, table: ReportTable) -> None:
        self.table = table
        lines = [line.cells for line in table.lines]
        cells = [cell for own in lines for cell in own.values()]
        published = [cell for cell in cells if cell.published is not None]
        self.published_columns = {name for own in lines for name, cell in own.items() if cell.published is not None}
        self.has_published = bool(published)
        is_compared = any(cell.verdict in COMPARABLE_VERDICTS for cell in published)
        reasons = list(dict.fromkeys(cell.why for cell in published if cell.verdict and cell.why))
        self.reasons = reasons if is_compared else []
        self.incomparable = [] if is_compared else reasons
        given = {cell.verdict for cell in published} if is_compared else set()
        self.verdicts = [verdict for verdict in VERDICT_SYMBOLS if verdict in given]
        self.comparisons = list(list_comparisons(table))
        self.tests = sum(cell.comparison.welch is not None for *_, cell in self.comparisons if cell.comparison)
        self.has_methods = any(line.method != BASE_METHOD for line in table.lines)
        self.has_marks = any(format_mark(cell) for cell in cells)
        self.single_seed = bool(cells) and max(len(cell.values) for cell in cells) == 1
        self.has_time = any(line.time not in ("", "-") for line in table.lines)
        self.axes = {name: axis for name in table.columns if (axis := build_column_axis(table, name))}
        self.strips = {
            (number, name): page_data.build_strip_plot(line.cells[name], axis)
            for number, line in enumerate(table.lines)
            for name, axis in self.axes.items()
            if name in line.cells
        }
        self.has_line = any(strip.published is not None for strip in self.strips.values())

    def repeats(self, overview: OverviewTable) -> bool:
        """Return True if the page's first table shows the same: our scores in a single column, and nothing else."""
        columns = self.table.columns
        is_alone = len(columns) == 1 and [columns] == overview.columns
        return is_alone and not self.has_published and not self.table.reported


def build_column_axis(table: ReportTable, column: str) -> page_data.Axis | None:
    """Make the axis of a column's seeds; None if it has no value."""
    return page_data.build_axis([line.cells[column] for line in table.lines if column in line.cells])


def list_comparisons(table: ReportTable) -> Iterator[tuple[str, str, str, str, Cell]]:
    """List every comparison with plain fine-tuning: encoder, method, its settings, column and cell."""
    for line in table.lines:
        for name in table.columns:
            cell = line.cells.get(name)
            if cell is not None and cell.comparison is not None:
                yield line.encoder, line.method, line.settings, name, cell


def format_name(name: str) -> str:
    """Write a name from the records, such as constant_predictor, as words."""
    return name.replace("_", " ")


def make_breakable(name: str) -> Markup:
    """Allow a line break after each underscore of a name."""
    return Markup("_<wbr>").join(name.split("_"))


def format_p_value(p: float | None) -> str:
    """Write a p-value as papers print it, without the zero before the point; a dash for none."""
    if p is None or page_data.to_finite_float(p) is None:
        return DASH
    return "< .001" if p < 0.001 else "1" if p >= 0.9995 else f"{p:.3f}".removeprefix("0")


def format_signed(value: float | None, digits: int = 2) -> str:
    """Write a number with its sign; zero has none; a dash if there is no finite number."""
    if page_data.to_finite_float(value) is None:
        return DASH
    text = f"{value:+.{digits}f}"
    return text.replace("-", MINUS) if float(text) else text[1:]


def format_seconds(value: float) -> str:
    """Write a time in seconds with about three digits."""
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} s"


def format_interval(estimate: Estimate) -> str:
    """Write a 95% interval in brackets; empty if there is none."""
    low, high = estimate.low, estimate.high
    return "" if math.isnan(low) or math.isnan(high) else f"[{format_signed(low)}, {format_signed(high)}]"


def format_share(value: float | None, digits: int = 3) -> str:
    """Write a number of about 0 to 1, such as IsoScore, with ``digits`` decimals; a dash for None."""
    return DASH if value is None else f"{value:.{digits}f}".replace("-", MINUS)


def format_mean_and_sd(values: Sequence[float]) -> str:
    """Write the mean of scores, and their standard deviation if there are several; a dash without scores."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return DASH
    spread = f" ± {statistics.stdev(finite):.2f}" if len(finite) > 1 else ""
    return f"{statistics.fmean(finite):.2f}{spread}"


def format_number(value: float | None) -> str:
    """Write a number with at most four digits; a dash for none."""
    return DASH if value is None else f"{value:.4g}".replace("-", MINUS)
