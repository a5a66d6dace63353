"""Write a report into its folder: the page, Markdown, LaTeX, and the tables as Parquet and CSV.

The page is one HTML file that needs nothing else: no network, no script; light, dark, any width, print.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow
from jinja2 import Template
from markupsafe import Markup

from isobench.common.environment import collect_garbage_rarely
from isobench.common.files import explain_output_errors, write_text
from isobench.common.tidy import write_table
from isobench.report.build import TIME_NOTE, Report, TableView
from isobench.report.claims import ELSEWHERE, OUTCOME_SYMBOLS, describe_multiplicity
from isobench.report.methods import list_score_cells
from isobench.report.output.figures import LIMITS, assign_styles, draw_curves, draw_isotropy
from isobench.report.output.templating import make_environment
from isobench.report.output.text import format_configuration, format_latex, format_markdown, list_columns
from isobench.report.tables import BASELINE, label_method, name_group, set_types
from isobench.report.wording import DASH, format_number, format_p_value, format_signed
from isobench.runs.folder import REPORT_TABLES, require_report_folder
from isobench.runs.grouping import find_report_folder
from isobench.runs.run import Run, describe_failure

PAGE_FILE = "report.html"
VERDICT_SYMBOLS = {"within": "≈", "above": "▲", "below": "▼", "not comparable": DASH}


@collect_garbage_rarely()
def write_report(report: Report, runs: Sequence[Run], folder: Path | None = None, outcome: Any = None) -> Path:
    """Write every form of a report, each file whole or not at all, and return the page's path.

    A ``folder`` of None stands for the sweep's folder in the runs' output folder. ``outcome`` is that of an analysis
    of the runs (`isobench.analyses.shown.Shown`), which the page shows.
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
    pairs = zip(report.runs["encoder"], report.runs["part"], strict=True)
    runs = report.runs.assign(encoder=[name_group(*pair) for pair in pairs])  # figures keep apart what tables do
    epochs = report.epochs.assign(encoder=report.epochs["key"].map(runs.set_index("key")["encoder"]))
    styles = assign_styles(report.runs["method"])
    return _load_template("page.html.j2").render(
        report=report,
        overview=lay_out_overview(report.methods, report.cells),
        configurations=lay_out_configurations(report.configurations),
        outcome=outcome,
        styles=styles,
        views=[(view, lay_out_table(view)) for view in report.views],
        curves=draw_curves(epochs, styles),
        isotropy=draw_isotropy(runs, styles),
        limits=LIMITS,
    )


def _load_template(name: str) -> Template:
    environment = make_environment()
    environment.filters |= {
        "words": lambda name: name.replace("_", " "), "failure": describe_failure, "label": label_method,
        "breakable": lambda name: Markup("_<wbr>").join(name.split("_")),
        "signed": format_signed, "number": format_number, "interval": format_interval, "counted": Counter,
        "p": format_p_value,
    }  # fmt: skip
    environment.tests["missing"] = math.isnan
    environment.globals |= {"BASE": BASELINE, "VERDICTS": VERDICT_SYMBOLS, "TIME_NOTE": TIME_NOTE}
    return environment.get_template(name)


def lay_out_overview(methods: pd.DataFrame, cells: pd.DataFrame) -> dict[str, Any]:
    """Lay out the page's first table: the lines of each group, and the range that the differences' drawings share.

    Two tasks or more have a column of scores each, if they are not too many; else one column has the mean over them.
    """
    lines = [line for line in methods.itertuples() if line.columns or line.troubles]
    ends = [(line.difference, line.low, line.high, line.printed) for line in lines]
    finite = [0.0, *filter(math.isfinite, chain.from_iterable(ends))]
    scores = {(cell.group, cell.method, cell.column): cell for cell in list_score_cells(cells).itertuples()}
    tasks = list(dict.fromkeys(task for *_, task in scores))
    groups: dict[str, list[Any]] = {}
    for line in lines:
        groups.setdefault(line.group, []).append(line)
    return {
        "groups": groups,
        "scores": scores,
        "tasks": tasks if 1 < len(tasks) <= LIMITS["tasks"] else [],
        "low": min(finite),
        "high": max(finite),
        "has_print": any(not math.isnan(line.printed) for line in lines),
        "has_p": any(not math.isnan(line.p) for line in lines),
        "has_isotropy": any(not math.isnan(x) for line in lines for x in (line.ev1, line.isoscore)),
        "has_time": any(line.time for line in lines),
    }


def lay_out_configurations(configurations: pd.DataFrame) -> dict[str, Any]:
    """Lay out the table of configurations: the columns that say something, and the lines of each task and group."""
    lines = [format_configuration(line) for line in configurations[: LIMITS["configurations"]].itertuples()]
    sections: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        sections.setdefault(line["section"], []).append(line)
    return {"columns": list_columns(lines), "sections": sections}


def lay_out_table(view: TableView) -> dict[str, Any]:
    """Say what a table's template needs: its comparisons, and whether ours can be compared with the paper."""
    published = [cell for cell in view.own_cells if cell.published is not None]
    comparisons = [cell for cell in view.own_cells if cell.compared]
    is_comparable = any(cell.verdict not in ("", "not comparable") for cell in published)
    return {
        "reasons": list(dict.fromkeys(cell.why for cell in published if cell.verdict and cell.why)),
        "is_comparable": is_comparable,
        "published_columns": {cell.column for cell in published},
        "comparisons": comparisons,
        "has_pairs": any(cell.paired_reason is not None for cell in comparisons),
        "has_time": any(line.time for line in view.own_lines),
    }


def format_interval(low: float, high: float) -> str:
    return "" if math.isnan(low) or math.isnan(high) else f"[{format_signed(low)}, {format_signed(high)}]"


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
