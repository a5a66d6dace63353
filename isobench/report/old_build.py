"""Build a ``Report`` from an experiment's runs: select, tabulate, compare cells with published ones and methods."""

import math
from collections import Counter
from typing import Any

from isobench.config.schema import Experiment
from isobench.papers import published
from isobench.papers.published import PublishedTable
from isobench.report.baseline_comparison import BASE_METHOD, apply_holm_correction, compare
from isobench.report.configurations import describe_settings, list_configurations
from isobench.report.document import Cell, ConfigurationLine, Report, ReportedRow, ReportLine, ReportTable
from isobench.report.evidence import describe_evidence
from isobench.report.example_pairs import ExamplePairs
from isobench.report.generation_notes import describe_generation
from isobench.report.method_effects import measure_effects
from isobench.report.old_selection import NOTHING_TO_SELECT, count_candidates, select_runs
from isobench.report.overview import build_overview
from isobench.report.pair_notes import describe_pairs
from isobench.report.paper_columns import SCORE_KIND, Column, build_foreign_columns
from isobench.report.paper_table import AVERAGE, PaperTable, list_paper_tables
from isobench.report.parts import name_parts, split_into_parts
from isobench.report.run_notes import describe_epoch_rule, list_scale_differences, list_warnings
from isobench.report.tidy_rows import build_epoch_columns, build_run_rows
from isobench.report.verdict import write_verdict
from isobench.runs.grouping import find_varying_settings, read_run_names
from isobench.runs.row import Row, count_troubles, find_failure

DEFAULT_STATISTICS = ["mean", "sd"]  # of a cell, if the paper has no table


def build_report(experiment: Experiment, rows: list[Row], pairs: ExamplePairs | None = None) -> Report:
    """Build the report of these runs, ended or not.

    Args:
        experiment: its name, paper, tables and selection rule.
        rows: the runs with their states (`isobench.runs.state.add_states`).
        pairs: reads predictions to compare methods over shared seeds and dev examples; None to leave this out.

    Raises:
        UserError: the selection rule can't be applied to these runs.
    """
    tables, rules, selected_keys = list[ReportTable](), list[str](), set[str]()
    candidates, part_by_key, configurations = dict[str, int](), dict[str, str](), list[ConfigurationLine]()
    parts = split_into_parts(rows)
    varying = find_varying_settings(rows)
    for part, name in zip(parts, name_parts(parts), strict=True):
        varying_in_part = find_varying_settings(part) if len(parts) > 1 else varying
        selected, rule = select_runs(part, experiment.selection, varying_in_part)
        part_tables = build_tables(experiment, selected, varying_in_part, pairs)
        for table in part_tables:
            table.part = name
            table.title += f" ({name})" if name else ""
        tables += part_tables
        rules.append(rule)
        keys = {row.folder.key for row in selected}
        selected_keys |= keys
        part_by_key |= {row.folder.path.name: name for row in part}
        if varying_in_part:
            configurations += list_configurations(part, experiment.selection, varying_in_part, name, keys)
        counts = count_candidates(part, experiment.selection, varying_in_part)
        candidates |= {row.folder.key: count for row, count in zip(part, counts, strict=True)}
    apply_holm_correction(tables)
    runs = build_run_rows(rows, varying)
    for run, row in zip(runs, rows, strict=True):
        run |= {"selected": row.folder.key in selected_keys, "candidates": candidates[row.folder.key]}
    effects = measure_effects(tables)
    overview = build_overview(tables, effects, runs, part_by_key)
    ended = sum(row.record is not None for row in rows)
    return Report(
        experiment=experiment.name or "runs",
        paper=experiment.paper,
        tables=tables,
        runs=runs,
        epochs=build_epoch_columns(rows, varying),
        selection=f"{describe_rules(rules, name_parts(parts))} From each run: its {describe_epoch_rule(rows)}.",
        state=dict(Counter(row.state for row in rows)),
        scale=list_scale_differences(rows),
        evidence=[*describe_evidence(effects), *describe_pairs(effects)],
        failures=[sentence for row in rows if (sentence := describe_failure(row))],
        provenance=summarize_provenance(runs),
        notes=[*describe_generation(rows), *list_warnings(rows)],
        verdict=write_verdict(effects, overview, ended, len(rows)),
        overview=overview,
        configurations=configurations,
    )


def describe_rules(rules: list[str], parts: list[str]) -> str:
    """Describe how configurations were selected in each part of the runs; a rule that all parts share, once.

    Args:
        rules: the sentence of each part, from ``select_runs``.
        parts: the name of each part.
    """
    if len(parts) > 1 and set(rules) == {NOTHING_TO_SELECT}:
        return (
            f"nothing to select: every method has one configuration in each part of the runs ({' | '.join(parts)})."
        )
    if len(set(rules)) == 1:
        return rules[0]
    return " ".join(f"Of {part}: {rule}" for part, rule in zip(parts, rules, strict=True))


def build_tables(
    experiment: Experiment, rows: list[Row], varying: list[str], pairs: ExamplePairs | None
) -> list[ReportTable]:
    """Build the paper's tables that have columns for these runs; if there is none, one table of all tasks."""
    tables = []
    for name, content, columns in list_paper_tables(experiment, rows):
        if columns:
            what, _, form = content.what.partition("; ")  # the form tells the paper's number of seeds, not ours
            title = f"{experiment.paper}, {name}: {what}"
            tables.append(build_table(name, title, PaperTable(content, columns, rows), varying, pairs))
            if form:
                tables[-1].notes.append(f"In the paper: {form}. Ours are the same statistics of our own runs.")
    if not tables:
        content = PublishedTable(what="", form=DEFAULT_STATISTICS, cells={}, columns={}, methods={})
        tasks = {row.cfg.task.name: row.cfg.task for row in rows}
        table = PaperTable(content, list(build_foreign_columns(list(tasks.values()), [SCORE_KIND])), rows)
        tables.append(build_table("", "mean and standard deviation over seeds", table, varying, pairs))
    return tables


def build_table(
    name: str, title: str, table: PaperTable, varying: list[str], pairs: ExamplePairs | None
) -> ReportTable:
    """Build a table with its cells; ``varying``: settings in which its runs may differ."""
    lines = []
    for encoder, method in table.lines:
        cells = {AVERAGE: build_average_cell(table, encoder, method)} if table.has_average else {}
        cells |= {column.title: build_cell(table, encoder, method, column, pairs) for column in table.columns}
        runs = [row for key, group in table.runs_by_key.items() if key[:2] == (encoder, method) for row in group]
        lines.append(
            ReportLine(encoder, method, cells, table.format_time(encoder, method), describe_settings(runs, varying))
        )
    tasks = {column.title: column.task for column in table.columns}
    columns = [AVERAGE, *tasks] if table.has_average else list(tasks)
    reported = [ReportedRow(table.reported_label, encoder, cells) for encoder, cells in table.list_reported_rows()]
    notes, marks = table.list_notes(with_time=True), table.content.marks
    scores = [column.title for column in table.columns if column.is_score]
    return ReportTable(name, title, columns, lines, notes, tasks, reported, marks, scores=scores)


def build_average_cell(table: PaperTable, encoder: str, method: str) -> Cell:
    """Build the cell of a row's average: it has no seeds, and the paper prints no spread to compare it by."""
    cell = Cell(ours=table.format_average(encoder, method))
    if printed := published.find_average(table.content, encoder, method):
        cell.published, cell.published_of = printed
    cell.verdict = "not comparable"
    cell.why = "no spread of an average is printed" if cell.published else "not in the paper"
    return cell


def build_cell(table: PaperTable, encoder: str, method: str, column: Column, pairs: ExamplePairs | None) -> Cell:
    """Build a cell: values by seed, their statistics as printed, verdict, comparison with plain fine-tuning."""
    rows = table.find_runs(encoder, method, column.task)
    scored = [(row.cfg.seed, value) for row in rows if (value := column.read_value(row)) is not None]
    cell = Cell(
        values=[value for _, value in scored],
        seeds=[seed for seed, _ in scored],
        ours=table.format_cell(encoder, method, column, marked=False),
        troubles=dict(count_troubles(rows)),
    )
    published_cell = published.find_cell_in_column(table.content, encoder, method, column.published_name)
    if published_cell:
        cell.published, cell.published_of = published_cell
    cell.verdict, cell.why = judge_cell(table, column, cell, encoder, method, rows)
    base = table.read_values(encoder, BASE_METHOD, column)
    if cell.values and base and table.is_compared(encoder, method, column):
        cell.comparison = compare(cell.values, base, table.content.marks)
        if pairs:
            cell.comparison.paired = pairs.compare(rows, table.find_runs(encoder, BASE_METHOD, column.task), column)
    return cell


def judge_cell(
    table: PaperTable, column: Column, cell: Cell, encoder: str, method: str, rows: list[Row]
) -> tuple[str, str]:
    """Return the verdict on our cell against the published one, and the reason."""
    if not cell.values:
        return "", "no run ended" if rows else "not run"
    if cell.published is None:
        return "not comparable", "not in the paper"
    if column.time:
        return "not comparable", "times of different machines"
    if cell.published_of != encoder:
        return "not comparable", f"the paper's cell is {cell.published_of}'s"
    if differences := list_scale_differences(rows):
        return "not comparable", f"scale: {'; '.join(differences)}"
    row = table.content.methods[method]
    printed = table.content.cells[encoder][row][column.published_name]
    ours = table.summarize_values(cell.values)[0]
    target, spread = printed[0], find_printed_spread(table.content.form, printed)
    if ours is None or target is None:
        return "not comparable", "no number"
    if math.isnan(ours) or math.isnan(target):
        both = math.isnan(ours) and math.isnan(target)
        return ("within", "both undefined") if both else ("not comparable", "one of the two is undefined")
    reason = f"{ours - target:+.2f}, {'no spread is printed' if spread is None else f'spread {spread:g}'}"
    reason += f"; {column.difference}" if column.difference else ""
    if matches_printed(ours, target) or (spread is not None and abs(ours - target) <= spread):
        return "within", reason
    return ("above" if ours > target else "below"), reason


def matches_printed(ours: float, target: Any) -> bool:
    """Return True if a number, rounded or cut to the printed one's digits, equals it."""
    scale = 10 ** len(str(target).partition(".")[2])
    return float(target) in (round(ours * scale) / scale, math.trunc(ours * scale) / scale)


def find_printed_spread(form: list[str], printed: list[Any]) -> float | None:
    """Return the standard deviation that a published cell prints; None if it prints none."""
    for name, value in zip(form, printed, strict=True):
        if name.endswith("sd") and value is not None:
            return float(value)
    return None


def describe_failure(row: Row) -> str | None:
    """Say what went wrong in a run, in one line; None if nothing did."""
    name = find_failure(row)
    if name is None and not row.trouble:
        return None
    cfg = row.cfg
    failure = row.record.failure if row.record else None
    message = row.trouble or (failure.message if failure else "")
    about = f"{', '.join(read_run_names(cfg))}, seed {cfg.seed}"
    return f"{about}: {name or 'damaged'} {message}".strip()


def summarize_provenance(runs: list[dict[str, Any]]) -> dict[str, str]:
    """List the code, machine and data of the runs; where runs differ, every value."""
    values_by_name: dict[str, dict[str, None]] = {}
    for run in runs:
        for name in ("commit", "code_changed", "python", "torch", "machine", "data", "weights"):
            if run[name] is not None:
                values_by_name.setdefault(name, {})[str(run[name])] = None
    return {name: ", ".join(values) for name, values in values_by_name.items()}
