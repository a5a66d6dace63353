"""The table a sweep ends with: methods side by side, every seed shown, the published cell beside it."""

import statistics
from typing import Any

from rich.table import Table

from isobench.common.terminal import console
from isobench.config.schema import method_name
from isobench.papers.published import cell
from isobench.report.generation import generation_notes
from isobench.report.paper_table import print_paper_tables
from isobench.runs.grouping import chosen, differences, groups, varying_settings
from isobench.runs.row import Row, all_constant, shown, troubles


def print_table(experiment: Any, rows: list[Row]) -> None:
    """Print the table of a sweep's runs, what it is not, and where everything lies."""
    out = console()
    varying = varying_settings(rows)
    table = Table(title=experiment.name or "runs", title_justify="left", header_style="bold")
    for name in ("task", "encoder", "method", *(name.partition(".")[2] for name in varying)):
        table.add_column(name, overflow="fold")  # narrow terminals wrap: nothing is cut
    for name in ("n", "median", "SD"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("every seed", *(["published"] if experiment.tables else []), "failures"):
        table.add_column(name, overflow="fold")
    for group in groups(rows, varying):
        table.add_row(*cells(group, varying, experiment))
    out.print(table)
    if varying and experiment.tables:
        out.print(
            f"The paper's table is left out: a cell there has one configuration, here vary {', '.join(varying)}."
        )
    else:
        print_paper_tables(out, experiment, rows)
    for note in footnotes(rows):
        out.print(note, highlight=False, markup=False)


def cells(group: list[Row], varying: list[str], experiment: Any) -> list[str]:
    """One line of the table."""
    cfg = group[0].cfg
    metric = cfg.task.primary
    ended = [row.record for row in group if row.record and row.record["best"] and not row.record["failure"]]
    scores = [100 * record["best"]["score"] for record in ended]
    method = method_name(cfg.calibration)
    of_papers = [
        cell(experiment.paper, name, cfg.encoder.name, method, cfg.task.name, metric) for name in experiment.tables
    ]
    published = next((found for found in of_papers if found is not None), None)
    return [
        f"{cfg.task.name} ({metric})",
        cfg.encoder.name,
        method,
        *chosen(cfg, varying),
        str(len(scores)),
        middle(group, scores),
        f"{statistics.stdev(scores):.2f}" if len(scores) > 1 and not all_constant(group) else "-",
        "  ".join(f"{row.cfg.seed}: {shown(row)}" for row in group),
        *(["not in the paper" if published is None else " ".join(published)] if experiment.tables else []),
        failures(group),
    ]


def middle(group: list[Row], scores: list[float]) -> str:
    """The median, unless no model of the group has learned to tell anything apart."""
    if all_constant(group):
        return "constant"
    return f"{statistics.median(scores):.2f}" if scores else "-"


def failures(group: list[Row]) -> str:
    """Failures by name and number; runs that have not ended are said to be missing, running, ..."""
    return ", ".join(f"{count} {name}" for name, count in sorted(troubles(group).items())) or "none"


def footnotes(rows: list[Row]) -> list[str]:
    """Scale, selection rule, and where the records are."""
    differs = list(dict.fromkeys(note for row in rows for note in differences(row)))
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
        trained(rows),
        f"Score: x100, {' or '.join(rules[report] for report in reports)}; SD over seeds.",
        *generation_notes(rows),
        *(f"Warning: {warning}." for warning in warnings),
        f"Records: {rows[0].folder.path.parent}/<key>/result.json",
    ]


def trained(rows: list[Row]) -> str:
    """What the runs were trained with: the values of the settings that papers state."""
    settings = [row.cfg.optimization for row in rows]
    shown = {"lr": dict.fromkeys(f"{o.lr:g}" for o in settings)}
    shown["batch"] = dict.fromkeys(
        f"{o.batch_tokens} tokens" if o.batch_tokens else f"{o.batch_size}" for o in settings
    )
    shown["epochs"] = dict.fromkeys(f"{o.epochs}" for o in settings)
    shown["length"] = dict.fromkeys(str(row.cfg.task.max_length) for row in rows)
    return "Trained with " + ", ".join(f"{name} {' or '.join(values)}" for name, values in shown.items()) + "."
