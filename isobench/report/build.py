"""From an experiment's runs to a ``Report``: select, tabulate, judge each cell by the published one, compare."""

import math
from collections import Counter
from typing import Any

from isobench.config.schema import Experiment, format_method_name
from isobench.papers import published
from isobench.papers.published import PublishedTable
from isobench.report.document import Cell, Report, ReportLine, ReportTable
from isobench.report.evidence import describe_evidence
from isobench.report.generation_notes import describe_generation
from isobench.report.paper_columns import SCORE_KIND, Column, build_foreign_columns
from isobench.report.paper_table import BASE_METHOD, PaperTable, list_paper_tables
from isobench.report.seed_statistics import apply_holm_correction, compare
from isobench.report.selection import select_runs
from isobench.report.tidy_rows import build_epoch_rows, build_run_rows
from isobench.runs.grouping import find_varying_settings, list_setting_values, read_scale_differences
from isobench.runs.row import Row, count_troubles, find_failure
from isobench.runs.state import find_run_states

DEFAULT_STATISTICS = ["mean", "sd"]  # a cell's statistics where the paper has no table


def build_report(experiment: Experiment, rows: list[Row]) -> Report:
    """The report of these runs, ended or not.

    Raises:
        UserError: a selection that can't be made.
    """
    for row, state in zip(rows, find_run_states(rows), strict=True):
        row.state = state.name
    tables, selections, kept = [], dict[str, None](), set[str]()
    settings = split_by_setting(rows)
    for alike in settings:
        chosen, selection = select_runs(alike, experiment.selection)
        scale = "; ".join(dict.fromkeys(note for row in alike for note in read_scale_differences(row)))
        found = build_tables(experiment, chosen, find_varying_settings(alike))
        for table in found:
            table.title += f" ({scale or 'as in the paper'})" if len(settings) > 1 else ""
        tables += found
        selections[selection] = None
        kept |= {row.folder.key for row in chosen}
    apply_holm_correction(tables)
    runs = build_run_rows(rows)
    for run, row in zip(runs, rows, strict=True):
        run["selected"] = row.folder.key in kept
    return Report(
        experiment=experiment.name or "runs",
        paper=experiment.paper,
        tables=tables,
        runs=runs,
        epochs=build_epoch_rows(rows),
        selection=f"{' '.join(selections)} {describe_epoch_rule(rows)}",
        state=dict(Counter(row.state for row in rows)),
        scale=list(dict.fromkeys(note for row in rows for note in read_scale_differences(row))),
        evidence=describe_evidence(tables),
        failures=[sentence for row in rows if (sentence := describe_failure(row))],
        provenance=summarize_provenance(runs),
        notes=[*describe_generation(rows), *collect_warnings(rows)],
    )


def split_by_setting(rows: list[Row]) -> list[list[Row]]:
    """The runs in as many parts as an encoder and task has settings: nothing is compared or selected across them."""
    seen: dict[tuple[str, str], dict[tuple[str, ...], None]] = {}
    parts: dict[int, list[Row]] = {}
    for row in rows:
        settings = seen.setdefault((row.cfg.encoder.name, row.cfg.task.name), {})
        settings.setdefault(tuple(read_scale_differences(row)))
        parts.setdefault(list(settings).index(tuple(read_scale_differences(row))), []).append(row)
    return list(parts.values())


def describe_epoch_rule(rows: list[Row]) -> str:
    """Which epoch of a run is reported, in words."""
    if {row.cfg.optimization.report for row in rows} == {"last"}:
        return "Of every run its last epoch."
    held_out = any(row.cfg.task.held_out is not None for row in rows)
    where = "on examples held out of the training set" if held_out else "on the dev set, the set it is reported on"
    return f"Of every run the best epoch {where}."


def describe_settings(rows: list[Row], varying: list[str]) -> str:
    """The configuration of a line's runs, in words; by task where tasks differ."""
    if not varying:
        return ""
    tasks: dict[str, str] = {}
    for row in rows:
        pairs = zip(varying, list_setting_values(row.cfg, varying), strict=True)
        tasks[row.cfg.task.name] = ", ".join(
            f"{name.partition('.')[2]}={value}" for name, value in pairs if value != "-"
        )
    if len(set(tasks.values())) == 1:
        return next(iter(tasks.values()))
    return "; ".join(f"{task}: {words}" for task, words in tasks.items())


def build_tables(experiment: Experiment, rows: list[Row], varying: list[str]) -> list[ReportTable]:
    """The paper's tables that the runs have columns of; one of the tasks where the paper has none."""
    found = []
    for name, content, columns in list_paper_tables(experiment, rows):
        if columns:
            title = f"{experiment.paper}, {name}: {content.what}"
            found.append(build_table(name, title, PaperTable(content, columns, rows), varying))
    if not found:
        content = PublishedTable(what="", form=DEFAULT_STATISTICS, cells={}, columns={}, methods={})
        tasks = {row.cfg.task.name: row.cfg.task for row in rows}
        table = PaperTable(content, list(build_foreign_columns(list(tasks.values()), [SCORE_KIND])), rows)
        found.append(build_table("", "mean and standard deviation over seeds", table, varying))
    return found


def build_table(name: str, title: str, table: PaperTable, varying: list[str]) -> ReportTable:
    """One table with its cells."""
    lines = []
    for encoder, method in table.lines:
        cells = {column.title: build_cell(table, encoder, method, column) for column in table.columns}
        runs = [
            row for (of, name, _), group in table.seeds.items() if (of, name) == (encoder, method) for row in group
        ]
        lines.append(
            ReportLine(encoder, method, cells, table.time(encoder, method), describe_settings(runs, varying))
        )
    tasks = {column.title: column.task for column in table.columns}
    return ReportTable(name, title, list(tasks), lines, table.notes(with_time=True), tasks)


def build_cell(table: PaperTable, encoder: str, method: str, column: Column) -> Cell:
    """One cell: the seeds, the paper's form, the verdict, the comparison with plain fine-tuning."""
    rows = table.runs(encoder, method, column.task)
    scored = [(row.cfg.seed, value) for row in rows if (value := column.value(row)) is not None]
    cell = Cell(
        values=[value for _, value in scored],
        seeds=[seed for seed, _ in scored],
        ours=table.format_cell(encoder, method, column, marked=False),
        troubles=dict(count_troubles(rows)),
    )
    found = published.find_cell_in_column(table.content, encoder, method, column.title)
    if found:
        cell.published, cell.published_of = found
    cell.verdict, cell.why = judge_cell(table, column, cell, encoder, method, rows)
    base = table.values(encoder, BASE_METHOD, column)
    constant = any(table.is_constant(encoder, name, column) for name in (method, BASE_METHOD))
    if method != BASE_METHOD and column.is_score and cell.values and base and not constant:
        cell.comparison = compare(cell.values, base)
    return cell


def judge_cell(
    table: PaperTable, column: Column, cell: Cell, encoder: str, method: str, rows: list[Row]
) -> tuple[str, str]:
    """How our cell stands to the published one, and why."""
    if not cell.values:
        return "", "no run ended" if rows else "not run"
    if cell.published is None:
        return "not comparable", "not in the paper"
    if column.time:
        return "not comparable", "times of two machines"
    if cell.published_of != encoder:
        return "not comparable", f"the paper's cell is {cell.published_of}'s"
    notes = list(dict.fromkeys(note for row in rows for note in read_scale_differences(row)))
    if notes:
        return "not comparable", f"scale: {'; '.join(notes)}"
    row = table.content.methods[method]
    printed = table.content.cells[encoder][row][column.title]
    ours = table.summary(cell.values)[0]
    target, spread = printed[0], find_printed_spread(table.content.form, printed)
    if ours is None or target is None:
        return "not comparable", "no number"
    if math.isnan(ours) or math.isnan(target):
        both = math.isnan(ours) and math.isnan(target)
        return ("within", "both undefined") if both else ("not comparable", "one is undefined")
    said = f"{ours - target:+.2f}, {'no spread is printed' if spread is None else f'spread {spread:g}'}"
    if matches_printed(ours, target) or (spread is not None and abs(ours - target) <= spread):
        return "within", said
    return ("above" if ours > target else "below"), said


def matches_printed(ours: float, target: Any) -> bool:
    """True if a number gives the printed one, rounded or cut to its digits."""
    scale = 10 ** len(str(target).partition(".")[2])
    return float(target) in (round(ours * scale) / scale, math.trunc(ours * scale) / scale)


def find_printed_spread(form: list[str], printed: list[Any]) -> float | None:
    """The deviation that a cell prints, if it does."""
    for name, value in zip(form, printed, strict=True):
        if name.endswith("sd") and value is not None:
            return float(value)
    return None


def describe_failure(row: Row) -> str | None:
    """What went wrong in a run, in a line; None if nothing did."""
    name = find_failure(row)
    if name is None and not row.trouble:
        return None
    cfg = row.cfg
    failure = row.record.failure if row.record else None
    said = row.trouble or (failure.message if failure else "")
    about = f"{cfg.task.name}, {cfg.encoder.name}, {format_method_name(cfg.calibration)}, seed {cfg.seed}"
    return f"{about}: {name or 'damaged'} {said}".strip()


def summarize_provenance(runs: list[dict[str, Any]]) -> dict[str, str]:
    """What the runs come from; where they differ, every value."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for name in ("commit", "code_changed", "python", "torch", "machine", "data", "weights"):
            if run[name] is not None:
                found.setdefault(name, {})[str(run[name])] = None
    return {name: ", ".join(values) for name, values in found.items()}


def collect_warnings(rows: list[Row]) -> list[str]:
    """What runs warned of, each once."""
    return list(dict.fromkeys(w for row in rows if row.record for w in row.record.warnings))
