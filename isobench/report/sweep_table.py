"""The table a sweep ends with: methods side by side, every seed shown, the published cell beside it."""

import statistics
from typing import Any

from rich.table import Table

from isobench.common.terminal import make_console
from isobench.config.schema import format_method_name
from isobench.papers.published import find_published_cell
from isobench.report.generation_notes import describe_generation
from isobench.report.paper_table import print_paper_tables
from isobench.runs.grouping import (
    find_varying_settings,
    group_over_seeds,
    list_setting_values,
    read_scale_differences,
)
from isobench.runs.layout import RECORD_FILE
from isobench.runs.row import Row, are_constant_predictors, count_troubles, format_score


def print_table(experiment: Any, rows: list[Row]) -> None:
    """Print the table of a sweep's runs, what it is not, and where everything lies."""
    out = make_console()
    varying = find_varying_settings(rows)
    table = Table(title=experiment.name or "runs", title_justify="left", header_style="bold")
    for name in ("task", "encoder", "method", *(name.partition(".")[2] for name in varying)):
        table.add_column(name, overflow="fold")  # narrow terminals wrap: nothing is cut
    for name in ("n", "median", "SD"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("every seed", *(["published"] if experiment.tables else []), "failures"):
        table.add_column(name, overflow="fold")
    for group in group_over_seeds(rows, varying):
        table.add_row(*format_table_line(group, varying, experiment))
    out.print(table)
    if varying and experiment.tables:
        out.print(
            f"The paper's table is left out: a cell there has one configuration, here vary {', '.join(varying)}."
        )
    else:
        print_paper_tables(out, experiment, rows)
    for note in list_footnotes(rows):
        out.print(note, highlight=False, markup=False)


def format_table_line(group: list[Row], varying: list[str], experiment: Any) -> list[str]:
    """One line of the table."""
    cfg = group[0].cfg
    metric = cfg.task.primary
    ended = [row.record for row in group if row.record and row.record["best"] and not row.record["failure"]]
    scores = [100 * record["best"]["score"] for record in ended]
    method = format_method_name(cfg.calibration)
    of_papers = [
        find_published_cell(experiment.paper, name, cfg.encoder.name, method, cfg.task.name, metric)
        for name in experiment.tables
    ]
    published = next((found for found in of_papers if found is not None), None)
    return [
        f"{cfg.task.name} ({metric})",
        cfg.encoder.name,
        method,
        *list_setting_values(cfg, varying),
        str(len(scores)),
        format_median(group, scores),
        f"{statistics.stdev(scores):.2f}" if len(scores) > 1 and not are_constant_predictors(group) else "-",
        "  ".join(f"{row.cfg.seed}: {format_score(row)}" for row in group),
        *(["not in the paper" if published is None else " ".join(published)] if experiment.tables else []),
        format_failures(group),
    ]


def format_median(group: list[Row], scores: list[float]) -> str:
    """The median, unless no model of the group has learned to tell anything apart."""
    if are_constant_predictors(group):
        return "constant"
    return f"{statistics.median(scores):.2f}" if scores else "-"


def format_failures(group: list[Row]) -> str:
    """Failures by name and number; runs that have not ended are said to be missing, running, ..."""
    return ", ".join(f"{count} {name}" for name, count in sorted(count_troubles(group).items())) or "none"


def list_footnotes(rows: list[Row]) -> list[str]:
    """Scale, selection rule, and where the records are."""
    differs = list(dict.fromkeys(note for row in rows for note in read_scale_differences(row)))
    scale = f"scale={rows[0].cfg.scale}. "
    scale += f"NOT the paper's setting: {'; '.join(differs)}." if differs else "Data and encoder are the paper's."
    rules = {
        "best": "best epoch on the dev set, the set it is reported on",
        "last": "the last epoch, on the dev set",
    }
    if any(row.cfg.task.held_out is not None for row in rows):
        rules["best"] = "best epoch on examples held out of the training set, reported on the dev set"
    reports = dict.fromkeys(row.cfg.optimization.report for row in rows)
    warnings = list(dict.fromkeys(w for row in rows if row.record for w in row.record["warnings"]))
    return [
        scale,
        describe_training(rows),
        f"Score: x100, {' or '.join(rules[report] for report in reports)}; SD over seeds.",
        *describe_generation(rows),
        *(f"Warning: {warning}." for warning in warnings),
        f"Records: {rows[0].folder.path.parent}/<key>/{RECORD_FILE}",
    ]


def describe_training(rows: list[Row]) -> str:
    """What the runs were trained with: the values of the settings that papers state."""
    settings = [row.cfg.optimization for row in rows]
    shown = {"lr": dict.fromkeys(f"{o.lr:g}" for o in settings)}
    shown["batch"] = dict.fromkeys(
        f"{o.batch_tokens} tokens" if o.batch_tokens else f"{o.batch_size}" for o in settings
    )
    shown["epochs"] = dict.fromkeys(f"{o.epochs}" for o in settings)
    shown["length"] = dict.fromkeys(str(row.cfg.task.max_length) for row in rows)
    return "Trained with " + ", ".join(f"{name} {' or '.join(values)}" for name, values in shown.items()) + "."
