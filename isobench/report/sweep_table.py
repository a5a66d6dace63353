"""Print the table that ends a sweep: one line for each configuration, every seed, the published cell beside it."""

import statistics
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from isobench.common.terminal import make_console
from isobench.config.schema import Config
from isobench.papers.published import find_published_cell
from isobench.report.generation_notes import describe_generation
from isobench.report.paper_terminal import print_paper_tables
from isobench.report.run_notes import describe_epoch_rule, list_scale_differences, list_warnings
from isobench.runs.grouping import (
    find_varying_settings,
    group_over_seeds,
    list_setting_values,
    read_run_names,
    shorten_setting_names,
)
from isobench.runs.labels import format_settings
from isobench.runs.layout import RECORD_FILE
from isobench.runs.row import Row, are_constant_predictors, count_troubles, format_score


def print_table(experiment: Any, rows: list[Row], candidates: Sequence[Row] = ()) -> None:
    """Print the table of a sweep's runs, the paper's tables with our numbers, and the footnotes.

    Args:
        experiment: its name, paper and tables.
        rows: the runs to show.
        candidates: all the runs, if ``rows`` were selected from them: a column then says which values were chosen.
    """
    out = make_console()
    varying = find_varying_settings(rows)
    chosen = [name for name in find_varying_settings(list(candidates)) if name not in varying]
    table = Table(title=experiment.name or "runs", title_justify="left", header_style="bold")
    settings = [*shorten_setting_names(varying).values(), *(["chosen"] if chosen else [])]
    for name in ("task", "encoder", "method", *settings):
        table.add_column(name, overflow="fold")  # narrow terminals wrap: nothing is cut
    for name in ("n", "median", "SD"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("every seed", *(["published"] if experiment.tables else []), "failures"):
        table.add_column(name, overflow="fold")
    for group in group_over_seeds(rows, varying):
        table.add_row(*format_table_line(group, varying, experiment, chosen))
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


def format_table_line(group: list[Row], varying: list[str], experiment: Any, chosen: Sequence[str]) -> list[str]:
    """Write the cells of one line, for runs that differ in their seeds only.

    Args:
        group: the runs.
        varying: the settings that have a column each.
        experiment: its paper and tables.
        chosen: the settings whose values were chosen among several, which share one column.
    """
    cfg = group[0].cfg
    task, encoder, method = read_run_names(cfg)
    metric = cfg.task.primary
    best = [row.record.best for row in group if row.record and row.record.best and not row.record.failure]
    scores = [100 * epoch.score for epoch in best]
    published_cells = (
        find_published_cell(experiment.paper, name, encoder, method, task, metric) for name in experiment.tables
    )
    published = next((cell for cell in published_cells if cell is not None), None)
    return [
        f"{task} ({metric})",
        encoder,
        method,
        *list_setting_values(group[0], varying),
        *([format_settings(group[0], chosen) or "-"] if chosen else []),
        str(len(scores)),
        format_median(group, scores),
        f"{statistics.stdev(scores):.2f}" if len(scores) > 1 and not are_constant_predictors(group) else "-",
        "  ".join(f"{format_seeds(row.cfg)}: {format_score(row)}" for row in group),
        *(["not in the paper" if published is None else " ".join(published)] if experiment.tables else []),
        format_failures(group),
    ]


def format_seeds(cfg: Config) -> str:
    """Write a run's seed, with the seeds of single random streams that were set: ``1 (order 7)``."""
    own = ", ".join(f"{stream} {seed}" for stream, seed in vars(cfg.seeds).items() if seed is not None)
    return f"{cfg.seed} ({own})" if own else str(cfg.seed)


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
    """Say what the runs were trained with: the settings that papers state, with the values that took effect."""
    settings = [row.cfg.optimization for row in rows]
    values_by_name = {"lr": dict.fromkeys(f"{o.lr:g}" for o in settings)}
    values_by_name["batch"] = dict.fromkeys(map(describe_batch, rows))
    values_by_name["epochs"] = dict.fromkeys(f"{o.epochs}" for o in settings)
    values_by_name["length"] = dict.fromkeys(map(describe_length, rows))
    parts = [f"{name} {' or '.join(values)}" for name, values in values_by_name.items()]
    return f"Trained with {', '.join(parts)}."


def describe_batch(row: Row) -> str:
    """Say how large a run's batches are; a batch can't have more examples than the training set has."""
    o = row.cfg.optimization
    if o.batch_tokens:
        return f"{o.batch_tokens} tokens"
    examples = row.record.data.examples.get(row.cfg.task.train_split) if row.record else None
    if examples is not None and examples < o.batch_size:
        return f"{examples} (the whole training set, less than optimization.batch_size={o.batch_size})"
    return str(o.batch_size)


def describe_length(row: Row) -> str:
    """Say how many tokens of a text a run reads at most: ``task.max_length``, or what its encoder takes if less."""
    limit, data = row.cfg.task.max_length, row.record.data if row.record else None
    used = (data.limits.sources if data.limits else data.max_length) if data else None
    if used is None or used >= limit:
        return str(limit)
    return f"{used} (task.max_length={limit} is more than the encoder takes)"
