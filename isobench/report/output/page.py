"""Write a report into its folder: the page, Markdown, LaTeX, and the tables as Parquet and CSV.

The page is one HTML file that needs nothing else: no network, no script; light, dark, any width, print.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow
from jinja2 import Template
from markupsafe import Markup

from isobench.common.environment import collect_garbage_rarely
from isobench.common.files import explain_output_errors, write_text
from isobench.common.tidy import write_table
from isobench.report.build import TIME_NOTE, Report, TableView
from isobench.report.claims import ELSEWHERE, OUTCOME_SYMBOLS, describe_multiplicity
from isobench.report.methods import list_comparisons
from isobench.report.output.figures import LIMITS, assign_styles, draw_curves, draw_isotropy
from isobench.report.output.templating import make_environment
from isobench.report.output.text import format_latex, format_markdown
from isobench.report.tables import (
    BASE_METHOD,
    BASELINE,
    compute_epoch_seconds,
    find_fastest,
    label_method,
    read_numbers,
    set_types,
)
from isobench.report.wording import DASH, format_number, format_p_value, format_seconds, format_signed
from isobench.runs.folder import REPORT_TABLES, require_report_folder
from isobench.runs.grouping import PROTOCOL_SETTINGS, SOURCE_SETTINGS, find_report_folder
from isobench.runs.run import Run

PAGE_FILE = "report.html"
VERDICT_SYMBOLS = {"within": "≈", "above": "▲", "below": "▼", "not comparable": DASH}
COMPARABLE_VERDICTS = ("within", "above", "below")  # verdicts of cells that can be compared with the published one
NUMBER_PATTERN = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
MAX_CONFIGURATIONS = 200  # lines of the table of configurations


@collect_garbage_rarely()
def write_report(report: Report, runs: Sequence[Run], folder: Path | None = None, outcome: Any = None) -> Path:
    """Write every form of a report, each file whole or not at all, and return the page's path.

    Args:
        report: of these runs, at least one.
        runs: the runs.
        folder: where the files go; None stands for the sweep's folder in the runs' output folder.
        outcome: of an analysis of the runs (`isobench.analyses.shown.Shown`), which the page shows.
    """
    folder = folder or find_report_folder(runs)
    texts = {"report.md": format_markdown(report), "tables.tex": format_latex(report)}
    with require_report_folder(folder), explain_output_errors(folder):
        for name in REPORT_TABLES:
            table = pyarrow.Table.from_pandas(set_types(getattr(report, name)), preserve_index=False)
            write_table(folder, name, table.replace_schema_metadata())
        for name, text in (texts | {PAGE_FILE: render_report(report, outcome)}).items():
            write_text(folder / name, text)
    return folder / PAGE_FILE


def render_report(report: Report, outcome: Any = None) -> str:
    """Write the page; equal reports give the same page. ``outcome`` is as in `write_report`."""
    encoders = _name_encoders(report.runs, report.varying)
    runs = report.runs.assign(encoder=encoders)
    epochs = report.epochs.assign(encoder=report.epochs["key"].map(dict(zip(runs["key"], encoders, strict=True))))
    styles = assign_styles(report.runs["method"])
    views = report.views
    overview = lay_out_overview(report.methods)
    curves = draw_curves(epochs, styles)
    sections = {
        "analysis": ("Analysis", outcome is not None),
        "configurations": ("Configurations", report.has_choices),
        "tables": ("Tables", any(not repeats(view, overview) for view in views)),
        "training": ("Over training", bool(curves)),
    }
    always = {
        "isotropy": "Isotropy and score", "cost": "Time and memory", "statistics": "Statistics",
        "failures": "Failures", "selection": "Selection", "provenance": "Provenance", "files": "Raw files",
    }  # fmt: skip
    return _load_template("page.html.j2").render(
        report=report,
        overview=overview,
        configurations=lay_out_configurations(report.configurations) if report.has_choices else [],
        contents=[(key, text) for key, (text, is_there) in sections.items() if is_there] + list(always.items()),
        outcome=outcome,
        styles=styles,
        views=[(view, lay_out_table(view)) for view in views],
        shown=[view for view in views if not repeats(view, overview)],
        curves=curves,
        isotropy=draw_isotropy(runs, styles),
        overheads=compute_overheads(runs),
        comparisons=len(list_comparisons(report.cells)),
        limits=LIMITS | {"configurations": MAX_CONFIGURATIONS},
        several_configs=report.has_choices or not report.runs["selected"].all(),
        curve_groups=len(epochs[["encoder", "task"]].drop_duplicates()),
    )


def _load_template(name: str) -> Template:
    environment = make_environment()
    environment.filters |= {
        "words": lambda name: name.replace("_", " "), "label": label_method, "p": format_p_value,
        "breakable": lambda name: Markup("_<wbr>").join(name.split("_")),
        "signed": format_signed, "number": format_number, "seconds": format_seconds,
        "interval": format_interval, "mean_sd": _format_mean_and_sd, "counted": Counter,
    }  # fmt: skip
    environment.tests["missing"] = math.isnan
    environment.globals |= {"BASE": BASELINE, "VERDICTS": VERDICT_SYMBOLS, "TIME_NOTE": TIME_NOTE}
    return environment.get_template(name)


def _name_encoders(runs: pd.DataFrame, varying: Sequence[str]) -> list[str]:
    """Name each run's encoder, with the scale and protocol behind it as far as they differ between runs.

    The page's figures group runs by encoder, so this keeps runs apart that must not be compared.
    """
    names = ("scale", *PROTOCOL_SETTINGS, *(name for name in SOURCE_SETTINGS if name in varying))
    differing = [name for name in names if runs[name].map(str).nunique() > 1]
    if not differing:
        return list(runs["encoder"])
    columns = [runs[name].map(str).map(lambda value, name=name: f"{name}={value}") for name in differing]
    if "scale" in differing:
        columns[0] = runs["scale"].map(lambda scale: scale or "the paper's setting")
    pairs = zip(runs["encoder"], zip(*columns, strict=True), strict=True)
    return [f"{encoder} ({'; '.join(settings)})" for encoder, settings in pairs]


class Axis(NamedTuple):
    """The range that the small drawings of a column share, in the column's unit."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return a value's position: 0 at the low end, 100 at the high end, 50 if both ends are equal."""
        return 50.0 if self.high <= self.low else 100 * (value - self.low) / (self.high - self.low)


def span(values: Iterable[float | None]) -> Axis | None:
    """Make the axis from the smallest to the largest finite value; None if there is none."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return Axis(min(finite), max(finite)) if finite else None


def _draw_strip(
    values: Sequence[float], seeds: Sequence[int], axis: Axis, published: float | None = None
) -> dict[str, Any]:
    """Place the values of a cell's seeds on its column's axis.

    Returns:
        ``dots``: their positions, from 0 (low end of the axis) to 100; ``published``: that of the published value,
        None if ours can't be compared with it; ``words``: the same in words, for readers who can't see it;
        ``undefined``: how many seeds have a value that is not a finite number.
    """
    pairs = zip(seeds, values, strict=True)
    words = [f"seed {seed}: {f'{value:.4g}' if math.isfinite(value) else 'undefined'}" for seed, value in pairs]
    words += [] if published is None else [f"published: {published:.4g}"]
    dots = [axis.place(value) for value in values if math.isfinite(value)]
    position = None if published is None else axis.place(published)
    return {"dots": dots, "published": position, "words": ", ".join(words), "undefined": len(values) - len(dots)}


def _read_published(cell: Any) -> float | None:
    """Return the first number of the published cell; None if ours can't be compared with it."""
    number = NUMBER_PATTERN.search(cell.published or "") if cell.verdict in COMPARABLE_VERDICTS else None
    return float(number.group()) if number else None


def lay_out_overview(methods: pd.DataFrame) -> dict[str, Any]:
    """Lay out the page's first table: its groups of lines, and the axes of differences and of seeds."""
    lines = [line for line in methods.itertuples() if line.columns or line.troubles or line.seeds]
    columns = [list(titles) for titles in dict.fromkeys(tuple(line.columns) for line in lines)]
    effects = span([0.0, *(end for line in lines for end in (line.difference, line.low, line.high))])
    seeds = [count for line in lines for count in line.seeds if count]
    tested = [line for line in lines if not math.isnan(line.p)]
    groups = {group: list(of_group) for group, of_group in groupby(lines, lambda line: line.group)}
    return {
        "groups": groups,
        "columns": columns,
        "effect_axis": effects if effects and effects.low < effects.high else None,
        "seed_axis": span(value for line in lines for value in line.values) if len(columns) == 1 else None,
        "strip": _draw_strip,
        "tests": len(tested),
        "has_trials": any(line.trials > 1 for line in tested),
        "is_paired": all(line.test_seeds for line in tested),
        "isotropy_tasks": {group: of_group[0].isotropy_tasks for group, of_group in groups.items()},
        "has_isotropy": any(not math.isnan(x) for line in lines for x in (line.ev1, line.isoscore)),
        "has_time": any(line.time for line in lines),
        "facts": [*(groups if len(groups) == 1 else ()), *filter(None, [_describe_seed_counts(seeds)])],
    }


def _describe_seed_counts(counts: Sequence[int]) -> str:
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f"{low} to {high} seeds" if low < high else f"{low} seed{'s' if low > 1 else ''} each"


def repeats(view: TableView, overview: dict[str, Any]) -> bool:
    """Return True if the page's first table shows the same: our scores in a single column, and nothing else."""
    is_alone = len(view.columns) == 1 and [view.columns] == overview["columns"]
    return is_alone and not any(cell.published for line in view.lines for cell in line.cells.values())


def lay_out_configurations(configurations: pd.DataFrame) -> list[dict[str, Any]]:
    """Lay out a table for each task and group, of the first ``MAX_CONFIGURATIONS`` configurations."""
    groups: dict[str, list[Any]] = {}
    for line in configurations[:MAX_CONFIGURATIONS].itertuples():
        groups.setdefault(f"{line.task}, {line.group}", []).append(line)
    tables = []
    for title, lines in groups.items():
        axis = span(value for line in lines for value in line.values)
        strips = [_draw_strip(line.values, line.seeds, axis) if axis else None for line in lines]
        tables.append({"title": title, "axis": axis, "lines": list(zip(lines, strips, strict=True))})
    return tables


def lay_out_table(view: TableView) -> dict[str, Any]:
    """Lay out a table: numbered reasons of the verdicts, its comparisons, and plots of every cell's seeds.

    Cells have verdicts if at least one can be compared with the paper; otherwise one sentence says why none can.
    """
    cells = view.own_cells
    published = [cell for cell in cells if cell.published is not None]
    is_compared = any(cell.verdict in COMPARABLE_VERDICTS for cell in published)
    reasons = list(dict.fromkeys(cell.why for cell in published if cell.verdict and cell.why))
    verdicts = {cell.verdict for cell in published} if is_compared else set()
    axes: dict[str, Axis] = {}  # by the column's title
    for name in view.columns:
        values: list[float | None] = []
        for line in view.own_lines:
            if name in line.cells:
                values += [*line.cells[name].values, _read_published(line.cells[name])]
        if axis := span(values):
            axes[name] = axis
    comparisons = [cell for cell in cells if cell.compared]
    return {
        "reasons": reasons if is_compared else [],
        "incomparable": [] if is_compared else reasons,
        "verdicts": [verdict for verdict in VERDICT_SYMBOLS if verdict in verdicts],
        "published_columns": {cell.column for cell in published},
        "comparisons": comparisons,
        "has_pairs": any(cell.paired_reason is not None for cell in comparisons),
        "tests": sum(not math.isnan(cell.p) for cell in comparisons),
        "single_seed": bool(cells) and max(cell.n for cell in cells) == 1,
        "has_time": any(line.time for line in view.own_lines),
        "axes": axes,
        "strips": [
            {
                name: _draw_strip(cell.values, cell.seeds, axes[name], _read_published(cell))
                for name, cell in line.cells.items()
                if name in axes
            }
            for line in view.own_lines
        ],
    }


def compute_overheads(runs: pd.DataFrame) -> dict[tuple[str, str], dict[str, dict[str, float]]]:
    """Compute time and memory: (encoder, method) -> task -> seconds an epoch, MiB, and their ratios to plain's.

    A number that was not measured is left out, and so are runs without any.
    """
    costs = {key: _find_cost(of_key) for key, of_key in runs.groupby(["encoder", "method", "task"], sort=False)}
    overheads: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for (encoder, method, task), cost in costs.items():
        base = costs.get((encoder, BASE_METHOD, task), {}) if method != BASE_METHOD else {}
        ratios = {f"{name}_ratio": value / base[name] for name, value in cost.items() if base.get(name)}
        if cost:
            overheads.setdefault((encoder, method), {})[task] = cost | ratios
    return overheads


def _find_cost(runs: pd.DataFrame) -> dict[str, float]:
    """Find the seconds an epoch of the fastest seed, and the memory in MiB of the seed that took most."""
    memory = read_numbers(runs, "peak_memory_mib")
    fastest = find_fastest(compute_epoch_seconds(runs))
    found = {"seconds": fastest, "memory": np.nanmax(memory) if np.isfinite(memory).any() else None}
    return {name: float(value) for name, value in found.items() if value is not None}


def format_interval(low: float, high: float) -> str:
    return "" if math.isnan(low) or math.isnan(high) else f"[{format_signed(low)}, {format_signed(high)}]"


def _format_mean_and_sd(values: Sequence[float]) -> str:
    """Write the mean of scores, and their standard deviation if there are several; a dash without scores."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return DASH
    spread = f" ± {statistics.stdev(finite):.2f}" if len(finite) > 1 else ""
    return f"{statistics.fmean(finite):.2f}{spread}"


def render_claims(claims: list[dict[str, Any]]) -> str:
    """Write the page of the papers' claims, each with its outcome; ``claims``: as `isobench report` judges them."""
    papers: dict[str, list[dict[str, Any]]] = {}
    for claim in claims:
        papers.setdefault(claim["paper"], []).append(claim)
    return _load_template("claims.html.j2").render(
        papers=papers,
        counts=Counter(claim["outcome"] for claim in claims),
        scaled=sum(claim["outcome"] in ELSEWHERE.values() for claim in claims),
        multiplicity=describe_multiplicity(len(claims)),
        SYMBOLS=OUTCOME_SYMBOLS,
    )
