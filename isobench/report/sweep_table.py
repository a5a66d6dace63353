"""Print the table that ends a sweep: one line for each configuration, every seed, the published cell beside it."""

import statistics
from typing import Any

from rich.table import Table

from isobench.common.terminal import make_console
from isobench.config.schema import format_method_name
from isobench.papers.published import find_published_cell
from isobench.report.generation_notes import describe_generation
from isobench.report.paper_terminal import print_paper_tables
from isobench.report.run_notes import describe_epoch_rule, list_scale_differences, list_warnings
from isobench.runs.grouping import (
    find_varying_settings,
    format_setting_heading,
    group_over_seeds,
    list_setting_values,
)
from isobench.runs.layout import RECORD_FILE
from isobench.runs.row import Row, are_constant_predictors, count_troubles, format_score


def print_table(experiment: Any, rows: list[Row]) -> None:
    """Print the table of a sweep's runs, the paper's tables with our numbers, and the footnotes."""
    out = make_console()
    varying = find_varying_settings(rows)
    table = Table(title=experiment.name or "runs", title_justify="left", header_style="bold")
    for name in ("task", "encoder", "method", *map(format_setting_heading, varying)):
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
            "The paper's table is left out: its cells have one configuration each, and in these runs "
            f"{', '.join(varying)} vary."
        )
    else:
        print_paper_tables(out, experiment, rows)
    for note in list_footnotes(rows):
        out.print(note, highlight=False, markup=False)


def format_table_line(group: list[Row], varying: list[str], experiment: Any) -> list[str]:
    """Write the cells of one line, for runs that differ in their seeds only."""
    cfg = group[0].cfg
    metric = cfg.task.primary
    best = [row.record.best for row in group if row.record and row.record.best and not row.record.failure]
    scores = [100 * epoch.score for epoch in best]
    method = format_method_name(cfg.calibration)
    published_cells = (
        find_published_cell(experiment.paper, name, cfg.encoder.name, method, cfg.task.name, metric)
        for name in experiment.tables
    )
    published = next((cell for cell in published_cells if cell is not None), None)
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
    """Write the median score, or ``constant`` if every run predicts the same for every example."""
    if are_constant_predictors(group):
        return "constant"
    return f"{statistics.median(scores):.2f}" if scores else "-"


def format_failures(group: list[Row]) -> str:
    """Count failures by name, and runs without a result by their state: missing, running, ..."""
    return ", ".join(f"{count} {name}" for name, count in sorted(count_troubles(group).items())) or "none"


def list_footnotes(rows: list[Row]) -> list[str]:
    """Write the sentences below the table: scale, training, reported epoch, warnings, where the records are."""
    return [
        *describe_scale(rows),
        describe_training(rows),
        f"Score: x100, of the {describe_epoch_rule(rows)}; SD over seeds.",
        *describe_generation(rows),
        *(f"Warning: {warning}." for warning in list_warnings(rows)),
        f"Records: {rows[0].folder.path.parent}/<key>/{RECORD_FILE}",
    ]


def describe_scale(rows: list[Row]) -> list[str]:
    """Say how data and encoder differ from the paper's; without a paper, which part of the data was used, if any."""
    differs = "; ".join(list_scale_differences(rows))
    if not rows[0].cfg.experiment.paper:
        return [f"Data: {differs}."] if differs else []
    comparison = f"NOT the paper's setting: {differs}." if differs else "Data and encoder are the paper's."
    return [f"scale={rows[0].cfg.scale}. {comparison}"]


def describe_training(rows: list[Row]) -> str:
    """Say what the runs were trained with: the values of the settings that papers state."""
    settings = [row.cfg.optimization for row in rows]
    values_by_name = {"lr": dict.fromkeys(f"{o.lr:g}" for o in settings)}
    values_by_name["batch"] = dict.fromkeys(
        f"{o.batch_tokens} tokens" if o.batch_tokens else f"{o.batch_size}" for o in settings
    )
    values_by_name["epochs"] = dict.fromkeys(f"{o.epochs}" for o in settings)
    values_by_name["length"] = dict.fromkeys(str(row.cfg.task.max_length) for row in rows)
    parts = [f"{name} {' or '.join(values)}" for name, values in values_by_name.items()]
    return f"Trained with {', '.join(parts)}."
