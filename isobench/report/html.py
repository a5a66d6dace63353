"""Write a report as one HTML page that needs nothing else: no network, no script; light, dark, any width, print."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from isobench.report import figures, page_data
from isobench.report.baseline_comparison import BASE_METHOD
from isobench.report.claims import OUTCOME_SYMBOLS
from isobench.report.document import Cell, Report, ReportTable, TidyRows
from isobench.report.effects import ALPHA
from isobench.report.figures import MethodStyle, PanelDrawer
from isobench.report.markdown_latex import format_mark
from isobench.report.page_data import ISOTROPY_COLUMNS
from isobench.report.seed_statistics import MARK_TESTS
from isobench.report.templating import make_environment

__all__ = ["render_claims", "render_report"]

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
# At most: pairs of encoder and task with curves, those shown unfolded, runs of a method and points in a panel.
DRAWING_LIMITS = {"groups": 30, "open": 4, "runs": figures.MAX_RUNS_DRAWN, "points": figures.MAX_POINTS_DRAWN}
VERDICT_SYMBOLS = {"within": "≈", "above": "▲", "below": "▼", "not comparable": DASH}


def render_report(report: Report) -> str:
    """Write the page; equal reports give the same page.

    ``runs`` and ``epochs`` may lack any column and any value, and every part of the report may be empty: the page
    then says what is missing.
    """
    report = page_data.add_scale_to_encoder(report)
    methods = [
        *(line.method for table in report.tables for line in table.lines),
        *list_distinct_values(report.runs, "method"),
        *list_distinct_values(report.epochs, "method"),
    ]
    styles = figures.assign_styles(methods)
    drawer = PanelDrawer()
    runs_at_epoch = page_data.group_rows(report.epochs, "encoder", "task", "method", "epoch")
    return load_template("page.html.j2").render(
        report=report,
        styles=styles,
        total=sum(report.state.values()),
        scales=list_distinct_values(report.runs, "scale"),
        views=[_TableView(table) for table in report.tables],
        curves=list(draw_curve_groups(drawer, report.epochs, styles)),
        unfinished=sum(count for name, count in report.state.items() if name not in ("done", "failed")),
        curve_groups=len(page_data.group_rows(report.epochs, "encoder", "task")),
        isotropy=IsotropySection.draw(drawer, report.runs, styles),
        overheads=page_data.compute_overheads(report.runs),
        tasks=list_distinct_values(report.runs, "task"),
        limits=DRAWING_LIMITS,
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
        "p": format_p_value,
        "signed": format_signed,
        "number": format_number,
        "seconds": format_seconds,
    }
    environment.globals |= {"ALPHA": ALPHA, "BASE": BASE_METHOD, "VERDICTS": VERDICT_SYMBOLS, "mark": format_mark}
    environment.globals |= {"MARK_TESTS": MARK_TESTS}
    return environment.get_template(name)


def list_distinct_values(rows: TidyRows, name: str) -> list[str]:
    """Return the different values of a column, in order of appearance, without missing ones."""
    return list(dict.fromkeys(str(row[name]) for row in rows if row.get(name) is not None))


def has_several_configs(report: Report) -> bool:
    """Return True if a method has runs of several configurations.

    A table's line then names the one that was selected, or several runs share encoder, task, method, seed and scale.
    """
    selected = any(line.settings for table in report.tables for line in table.lines)
    same = page_data.group_rows(report.runs, "encoder", "task", "method", "seed", "scale")
    return selected or any(len(runs) > 1 for runs in same.values())


class _TableView:
    """A table with what the page adds to it: numbered reasons, a list of comparisons, plots of every cell's seeds."""

    def __init__(self, table: ReportTable) -> None:
        self.table = table
        cells = [cell for line in table.lines for cell in line.cells.values()]
        self.reasons = list(dict.fromkeys(cell.why for cell in cells if cell.verdict and cell.why))
        self.comparisons = list(list_comparisons(table))
        self.tests = sum(cell.comparison.welch is not None for *_, cell in self.comparisons if cell.comparison)
        self.verdicts = [verdict for verdict in VERDICT_SYMBOLS if any(cell.verdict == verdict for cell in cells)]
        self.has_marks = any(format_mark(cell) for cell in cells)
        self.single_seed = bool(cells) and max(len(cell.values) for cell in cells) == 1
        self.has_time = any(line.time not in ("", "-") for line in table.lines)
        self.axes = {name: axis for name in table.columns if (axis := page_data.build_axis(table, name))}
        self.strips = {
            (number, name): page_data.build_strip_plot(line.cells[name], axis)
            for number, line in enumerate(table.lines)
            for name, axis in self.axes.items()
            if name in line.cells
        }


def list_comparisons(table: ReportTable) -> Iterator[tuple[str, str, str, str, Cell]]:
    """List every comparison with plain fine-tuning: encoder, method, its settings, column and cell."""
    for line in table.lines:
        for name in table.columns:
            cell = line.cells.get(name)
            if cell is not None and cell.comparison is not None:
                yield line.encoder, line.method, line.settings, name, cell


@dataclass
class Panel:
    """A small figure and its title."""

    title: str
    svg: Markup


@dataclass
class CurveGroup:
    """The panels of one encoder and task, and the methods that they show."""

    title: str
    panels: list[Panel]
    methods: list[str]


def draw_curve_groups(drawer: PanelDrawer, epochs: TidyRows, styles: dict[str, MethodStyle]) -> Iterator[CurveGroup]:
    """Draw the curves over training of each encoder and task, of no more than ``DRAWING_LIMITS`` allow."""
    measures = {"score": "Score"} | {
        name: f"{symbol}, {matrix}" for name, (symbol, matrix) in ISOTROPY_COLUMNS.items()
    }
    groups = list(page_data.group_rows(epochs, "encoder", "task").items())
    for (encoder, task), rows in groups[: DRAWING_LIMITS["groups"]]:
        title = f"{task}, {encoder}"
        panels = [
            Panel(text, svg)
            for name, text in measures.items()
            if (svg := figures.draw_curves(drawer, rows, name, styles, f"{text} against the epoch: {title}"))
        ]
        if panels:
            methods = set(list_distinct_values(rows, "method"))
            yield CurveGroup(title, panels, [method for method in styles if method in methods])


@dataclass
class IsotropySection:
    """Isotropy against score.

    Attributes:
        names: of the measures, as column titles.
        parts: title, panels and correlations of the points as measured, and less the means of encoder and task.
        methods: those that the panels show.
        most_points: the number of points of the measure that has most.
    """

    names: list[str]
    parts: list[tuple[str, list[Panel], dict[str, list[page_data.Correlation]]]]
    methods: list[str]
    most_points: int

    @classmethod
    def draw(cls, drawer: PanelDrawer, runs: TidyRows, styles: dict[str, MethodStyle]) -> "IsotropySection":
        """Draw the section for the measures that any run has."""
        points = {name: page_data.collect_points(runs, name) for name in ISOTROPY_COLUMNS}
        measures = [name for name, own in points.items() if own]
        with_score = [run for run in runs if page_data.to_finite_float(run.get("score")) is not None]
        kinds = {False: "As measured"}
        if len(page_data.group_rows(with_score, "encoder", "task")) > 1:
            kinds[True] = "Less the mean of each encoder and task"
        parts = []
        for centred, kind in kinds.items() if measures else ():
            panels = []
            for name in measures:
                symbol, matrix = ISOTROPY_COLUMNS[name]
                drawn = page_data.collect_points(runs, name, centred) if centred else points[name]
                labels = (f"{symbol} less mean", "score less mean") if centred else (symbol, "score")
                description = f"Score against {symbol} of the {matrix}, a point a run. {kind}."
                if svg := figures.draw_scatter(drawer, drawn, styles, *labels, description):
                    panels.append(Panel(f"{symbol}, {matrix}", svg))
            parts.append((kind, panels, page_data.compute_correlations(with_score, measures, centred)))
        methods = {point.method for own in points.values() for point in own}
        names = [", ".join(ISOTROPY_COLUMNS[name]) for name in measures]
        most = max(map(len, points.values()), default=0)
        return cls(names, parts, [method for method in styles if method in methods], most)


def format_name(name: str) -> str:
    """Write a name from the records, such as constant_predictor, as words."""
    return name.replace("_", " ")


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


def format_number(value: float | None) -> str:
    """Write a number with at most four digits; a dash for none."""
    return DASH if value is None else f"{value:.4g}".replace("-", MINUS)
