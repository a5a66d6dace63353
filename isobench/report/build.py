"""From an experiment's runs to a ``Report``: select, tabulate, judge each cell by the published one, compare."""

from collections import Counter
from typing import Any

from isobench.report import published
from isobench.report.collect import epochs_of, runs_of
from isobench.report.evidence import evidence
from isobench.report.model import Cell, Line, Report, ReportTable
from isobench.report.paper_table import BASE, Column, PaperTable, columns_for, columns_of
from isobench.report.row import Row, failure, troubles
from isobench.report.select import select
from isobench.report.statistics import compare, correct
from isobench.run import scale_notes
from isobench.schema import Experiment, method_name
from isobench.sweep.state import states_of

PLAIN = ["mean", "sd"]  # a cell's statistics where the paper has no table


def build(experiment: Experiment, rows: list[Row]) -> Report:
    """The report of these runs, ended or not.

    Raises:
        UserError: a selection that can't be made.
    """
    for row, state in zip(rows, states_of(rows), strict=True):
        row.state = state.name
    chosen, selection = select(rows, experiment.selection)
    tables = tables_of(experiment, chosen)
    correct(tables)
    return Report(
        experiment=experiment.name or "runs",
        paper=experiment.paper,
        tables=tables,
        runs=runs_of(rows),
        epochs=epochs_of(rows),
        selection=selection,
        state=dict(Counter(row.state for row in rows)),
        scale=list(dict.fromkeys(note for row in rows for note in differs(row))),
        evidence=evidence(tables),
        failures=[sentence for row in rows if (sentence := failed(row))],
        provenance=provenance_of(rows),
        notes=warnings_of(rows),
    )


def tables_of(experiment: Experiment, rows: list[Row]) -> list[ReportTable]:
    """The paper's tables that the runs have columns of; one of the tasks where the paper has none."""
    tasks = {row.cfg.task.name: row.cfg.task for row in rows}
    contents = {name: published.load(experiment.paper)[name] for name in experiment.tables if experiment.paper}
    known = {what["task"] for content in contents.values() for what in content["columns"].values()}
    foreign = [task for name, task in tasks.items() if name not in known]
    found, shown = [], set[str | None]()  # kinds of columns in which tasks that are not the paper's stand already
    for name, content in contents.items():
        kinds = {what.get("isotropy") for what in content["columns"].values()}
        columns = [*columns_of(content, tasks), *columns_for(foreign, sorted(kinds - shown, key=str))]
        shown |= kinds
        if columns:
            title = f"{experiment.paper}, {name}: {content['what']}"
            found.append(table_of(name, title, PaperTable(content, columns, rows)))
    if not found:
        content = {"form": PLAIN, "cells": {}, "columns": {}, "methods": {}}
        table = PaperTable(content, list(columns_for(list(tasks.values()), [None])), rows)
        found.append(table_of("", "mean and standard deviation over seeds", table))
    return found


def table_of(name: str, title: str, table: PaperTable) -> ReportTable:
    """One table with its cells."""
    lines = [
        Line(encoder, method, {c.title: cell_of(table, encoder, method, c) for c in table.columns},
             table.time(encoder, method))
        for encoder, method in table.lines
    ]  # fmt: skip
    tasks = {column.title: column.task for column in table.columns}
    return ReportTable(name, title, list(tasks), lines, table.notes(with_time=True), tasks)


def cell_of(table: PaperTable, encoder: str, method: str, column: Column) -> Cell:
    """One cell: the seeds, the paper's form, the verdict, the comparison with plain fine-tuning."""
    rows = table.runs(encoder, method, column.task)
    scored = [(row.cfg.seed, value) for row in rows if (value := column.value(row)) is not None]
    cell = Cell(
        values=[value for _, value in scored],
        seeds=[seed for seed, _ in scored],
        ours=table.cell(encoder, method, column),
        troubles=dict(troubles(rows)),
    )
    found = published.of_column(table.content, encoder, method, column.title)
    if found:
        cell.published, cell.published_of = found
    cell.verdict, cell.why = verdict(table, column, cell, encoder, method, rows)
    base = table.values(encoder, BASE, column)
    constant = any(table.is_constant(encoder, name, column) for name in (method, BASE))
    if method != BASE and not column.isotropy and cell.values and base and not constant:
        cell.comparison = compare(cell.values, base)
    return cell


def verdict(
    table: PaperTable, column: Column, cell: Cell, encoder: str, method: str, rows: list[Row]
) -> tuple[str, str]:
    """How our cell stands to the published one, and why."""
    if not cell.values:
        return "", "no run ended" if rows else "not run"
    if cell.published is None:
        return "not comparable", "not in the paper"
    if cell.published_of != encoder:
        return "not comparable", f"the paper's cell is {cell.published_of}'s"
    notes = list(dict.fromkeys(note for row in rows for note in differs(row)))
    if notes:
        return "not comparable", f"scale: {'; '.join(notes)}"
    row = table.content["methods"][method]
    printed = table.content["cells"][encoder][row][column.title]
    ours = table.summary(cell.values)[0]
    target, spread = printed[0], spread_of(table.content["form"], printed)
    if ours is None or ours != ours or target != target:
        return "not comparable", "undefined"
    if spread is None:
        return ("above" if ours > target else "below"), "no spread is printed"
    if abs(ours - target) <= spread:
        return "within", f"{ours - target:+.2f}, spread {spread:g}"
    return ("above" if ours > target else "below"), f"{ours - target:+.2f}, spread {spread:g}"


def spread_of(form: list[str], printed: list[Any]) -> float | None:
    """The deviation that a cell prints, if it does."""
    for name, value in zip(form, printed, strict=True):
        if name.endswith("sd") and value is not None:
            return float(value)
    return None


def differs(row: Row) -> list[str]:
    """How a run is not the paper's setting."""
    return row.record["scale"]["differs"] if row.record else scale_notes(row.cfg)


def failed(row: Row) -> str | None:
    """What went wrong in a run, in a line; None if nothing did."""
    name = failure(row)
    if name is None and not row.trouble:
        return None
    cfg = row.cfg
    said = row.trouble or ((row.record or {}).get("failure") or {}).get("message", "")
    about = f"{cfg.task.name}, {cfg.encoder.name}, {method_name(cfg.calibration)}, seed {cfg.seed}"
    return f"{about}: {name or 'damaged'} {said}".strip()


def provenance_of(rows: list[Row]) -> dict[str, str]:
    """What the runs come from; where they differ, every value."""
    found: dict[str, dict[str, None]] = {}
    for run in runs_of([row for row in rows if row.record]):
        for name in ("commit", "code_changed", "python", "torch", "machine", "data", "weights"):
            if run[name] is not None:
                found.setdefault(name, {})[str(run[name])] = None
    return {name: ", ".join(values) for name, values in found.items()}


def warnings_of(rows: list[Row]) -> list[str]:
    """What runs warned of, each once."""
    return list(dict.fromkeys(w for row in rows if row.record for w in row.record["warnings"]))
