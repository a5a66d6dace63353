"""Write a report as Markdown and as LaTeX: here the text of each cell, in ``templates/`` what stands around it."""

import math
import re
import statistics
from collections.abc import Sequence
from typing import Any

from isobench.report.build import TIME_NOTE, Report, TableView
from isobench.report.output.templating import make_latex_environment, make_markdown_environment, render_paragraphs
from isobench.report.tables import CONSTANT_PREDICTOR, label_method
from isobench.report.wording import format_points
from isobench.statistics.seeds import compute_sd

CLAIM_COLUMNS = ("paper", "claim", "criterion", "outcome", "numbers", "scale", "experiment")
COLUMNS = ("n", "mean", "SD", "change", "EV1", "IsoScore", "time", "chosen")  # of the table of configurations
NOTHING = "-"  # in place of a number that a line does not have


def format_markdown(report: Report) -> str:
    """Write the whole report as Markdown."""
    environment = make_markdown_environment()
    return render_paragraphs(environment, "report.md.j2", report=report, rows=list_rows, time_note=TIME_NOTE)


def format_claims_markdown(claims: list[dict[str, Any]]) -> str:
    rows = [[claim[name] for name in CLAIM_COLUMNS] for claim in claims]
    return render_paragraphs(make_markdown_environment(), "claims.md.j2", head=CLAIM_COLUMNS, rows=rows)


def format_latex(report: Report) -> str:
    """Write every table of the report in booktabs form; needs the packages booktabs and, for wide ones, graphicx."""
    return render_paragraphs(
        make_latex_environment(),
        "tables.tex.j2",
        report=report,
        label=re.sub("[^a-z0-9]+", "-", report.name.lower()).strip("-"),
        rows=list_rows,
    )


def list_rows(view: TableView) -> list[list[str]]:
    """List a table's rows as texts: encoder, method, cells, training time.

    The row ``[print]`` below ours has the paper's cells in brackets, and names their encoder if it is not ours.
    """
    rows = []
    for line in view.lines:
        label = f"{label_method(line.method)} ({line.settings})" if line.settings else label_method(line.method)
        cells = [line.cells.get(name) for name in view.columns]
        encoders = {cell.published_of for cell in cells if cell and cell.published}
        printed = [_format_published(cell, len(encoders) > 1) if cell else "" for cell in cells]
        if not line.is_reported:
            ours = ["" if cell is None else f"{cell.ours or NOTHING} {cell.mark}".rstrip() for cell in cells]
            rows.append([line.encoder, label, *ours, line.time or NOTHING])
            is_other = len(encoders) == 1 and encoders != {line.encoder}
            label = f"[print: {encoders.pop()}]" if is_other else "[print]"
        if any(printed):
            rows.append([line.encoder, label, *printed, ""])
    return rows


def _format_published(cell: Any, with_encoder: bool) -> str:
    if not cell.published:
        return ""
    return f"[{cell.published} {cell.published_of}]" if with_encoder else f"[{cell.published}]"


def format_configuration(line: Any) -> dict[str, Any]:
    """Write a row of `Report.configurations` as texts: its section, name, ``COLUMNS``, and ``scores`` by seed.

    A seed has its score, what went wrong, or both, such as "56.34 constant".
    """
    values = line.values
    is_constant = line.troubles.count(CONSTANT_PREDICTOR) == line.runs
    mean = statistics.fmean(values) if values else math.nan
    change = mean - statistics.fmean(line.base) if line.base else math.nan
    spread = math.nan if is_constant else compute_sd(values)
    is_ratio = line.base_seconds > 0 and line.seconds > 0
    seconds = _format_number(line.seconds, ",.1f" if line.seconds < 100 else ",.0f", " s")
    scores: dict[int, list[str]] = {}
    for seed, value in zip(line.seeds, values, strict=True):
        scores.setdefault(seed, []).append(f"{value:.2f}".replace("nan", "NaN"))
    for seed, trouble in zip(line.trouble_seeds, line.troubles, strict=True):
        if not is_constant:  # else the line says it of all seeds
            scores.setdefault(seed, []).append(trouble.removesuffix("_predictor"))
    return {
        "section": f"{line.task} ({line.metric}), {line.group}",
        "name": f"{label_method(line.method)} {line.settings}".rstrip(),
        "n": str(len(values)) if len(values) == line.runs else f"{len(values)}/{line.runs}",
        "mean": "constant" if is_constant else f"{mean:.2f}".replace("nan", "NaN") if values else NOTHING,
        "SD": _format_number(spread, ".2f"),
        "change": format_points(change) if math.isfinite(change) else NOTHING,
        "EV1": _format_number(line.ev1, ".3f"),
        "IsoScore": _format_number(line.isoscore, ".4f"),
        "time": f"{line.seconds / line.base_seconds:.2f}x" if is_ratio else seconds,
        "chosen": "yes" if line.is_chosen else "",
        "scores": {seed: " ".join(of_seed) for seed, of_seed in scores.items()},
        "troubles": line.troubles,
    }


def list_columns(lines: Sequence[dict[str, Any]]) -> list[str]:
    """List the columns of formatted configurations that say something: a number, or which of several was chosen."""
    return [name for name in COLUMNS if {line[name] for line in lines} - {NOTHING, "yes"}]


def _format_number(number: float, form: str, unit: str = "") -> str:
    return NOTHING if math.isnan(number) else f"{number:{form}}{unit}"
