"""Build a report from runs: everything that a page, a terminal, a file or a claim shows of an experiment."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from isobench.common.terminal import format_count, name_some
from isobench.config.schema import Experiment
from isobench.papers import published
from isobench.papers.folders import find_papers
from isobench.papers.published import PublishedTable
from isobench.report.cells import AVERAGE, build_cells, find_content, list_mistakes
from isobench.report.methods import compare_methods, list_comparisons, tabulate_comparisons
from isobench.report.paired_tests import ExamplePairs
from isobench.report.selection import select_runs
from isobench.report.tables import BASE_METHOD, BASELINE, build_epochs, build_runs, list_scale_differences
from isobench.report.verdict import write_verdict
from isobench.report.wording import describe_epoch_rule, describe_generation, list_training_settings
from isobench.runs.grouping import find_varying_settings
from isobench.runs.run import Run
from isobench.statistics.seeds import ALPHA

TIME_NOTE = (
    "Training time: of the fastest seed, relative to plain fine-tuning's; of several tasks the median and the range. "
    "Comparable only if the machine did nothing else."
)
ORIGIN = ("commit", "code_changed", "python", "torch", "machine", "data", "weights")  # columns of ``runs``


@dataclass(frozen=True)
class Line:
    """A line of a table: an encoder and method, or a row of others' numbers that the paper repeats.

    Attributes:
        encoder, method, settings, time: as in ``cells``.
        cells: column title -> the cell, a row of ``cells``.
        is_reported: True for others' numbers.
    """

    encoder: str
    method: str
    settings: str
    time: str
    cells: dict[str, Any]
    is_reported: bool


@dataclass(frozen=True)
class TableView:
    """One table of a report.

    Attributes:
        name: its name in published.yaml; empty if the paper has no such table.
        part: the part of the runs that it shows; empty if there is only one.
        title: the heading above it.
        columns: titles of the columns.
        lines: ours first, then the rows that the paper repeats from others.
        notes: sentences below it, the meaning of its marks first if it can have some.
    """

    name: str
    part: str
    title: str
    columns: list[str]
    lines: list[Line]
    notes: list[str]

    @property
    def has_other_methods(self) -> bool:
        return any(line.method != BASE_METHOD for line in self.own_lines)

    @property
    def own_lines(self) -> list[Line]:
        return [line for line in self.lines if not line.is_reported]

    @property
    def own_cells(self) -> list[Any]:
        return [cell for line in self.own_lines for cell in line.cells.values()]

    @property
    def has_marks(self) -> bool:
        return any(cell.mark for cell in self.own_cells)


@dataclass(frozen=True)
class Report:
    """What the runs of one experiment show.

    Attributes:
        experiment: its name, paper, tables and selection rule.
        runs, epochs, cells: the tables that `isobench.report.tables` describes.
        configurations: every configuration that was tried (`isobench.report.selection.CONFIGURATIONS`).
        varying: dotted names of the settings in which the runs differ.
        rule: how configurations were selected, in words.
        epoch_rule: how the epoch of a run was selected, in words.
        settings: what the runs were trained with, by name.
        notes: sentences on generation, truncation and warnings.
    """

    experiment: Experiment
    runs: pd.DataFrame
    epochs: pd.DataFrame
    cells: pd.DataFrame
    configurations: pd.DataFrame
    varying: list[str]
    rule: str = ""
    epoch_rule: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.experiment.name or name_some(self.runs["task"].unique())

    @property
    def selection(self) -> str:
        """How configurations and epochs were selected, in words."""
        return f"{self.rule} From each run: its {self.epoch_rule}."

    @property
    def has_choices(self) -> bool:
        columns = ["group", "task", "method"]
        return not self.configurations.empty and bool(self.configurations.duplicated(columns).any())

    @cached_property
    def views(self) -> list[TableView]:
        """The tables as they are printed, in the paper's order for each part."""
        return _list_views(self)

    @cached_property
    def methods(self) -> pd.DataFrame:
        """A row for each method: what it gains over all its tasks (`isobench.report.methods.METHODS`)."""
        return compare_methods(self.cells, self.runs)

    @property
    def described_settings(self) -> str:
        """Say in one line what the runs were trained with; empty if that is not known."""
        return " · ".join(f"{name} {value}" for name, value in self.settings.items())

    @cached_property
    def marked_comparisons(self) -> int:
        """Count the differences in the tables that have a test: Holm's family of the marks."""
        return len(list_comparisons(self.cells))

    @property
    def legend(self) -> str:
        """Say what the marks of the tables mean."""
        count = format_count(self.marked_comparisons, "comparison")
        return (
            f"* better, † worse than {BASELINE}: p < {ALPHA} after Holm's correction over {count} (t-test over "
            "seeds, paired where both have the same)."
        )

    @property
    def states(self) -> dict[str, int]:
        """State of a run -> number of runs; a finished run is done."""
        return dict(Counter("done" if status == "finished" else status for status in self.runs["status"]))

    @property
    def scale(self) -> list[str]:
        """How the setting differs from the paper's, in words; empty if it does not."""
        return list_scale_differences(self.runs)

    @property
    def paper(self) -> str | None:
        """The paper with which the runs are compared; None without one, or if its folder is not here."""
        return self.experiment.paper if self.experiment.paper in find_papers() else None

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """Every method against plain fine-tuning over all its tasks, as texts."""
        return tabulate_comparisons(self.methods)

    @cached_property
    def verdict(self) -> str:
        """What the comparisons with plain fine-tuning show, in one sentence."""
        ended = int(self.runs["status"].isin(["finished", "failed"]).sum())
        return write_verdict(self.cells, self.methods, ended, len(self.runs))

    @property
    def failures(self) -> list[str]:
        """One line for each run that failed, predicts one class, or is damaged."""
        wrong = self.runs[self.runs["failure"].notna() | self.runs["message"].notna()]
        lines = []
        for run in wrong.itertuples():
            about = f"{run.task}, {run.encoder}, {run.method}, seed {run.seed}"
            lines.append(f"{about}: {run.failure or 'damaged'} {run.message or ''}".strip())
        return lines

    @property
    def provenance(self) -> dict[str, str]:
        """What code, data and machine the ended runs used; where runs differ, every value."""
        ended = self.runs[self.runs["status"].isin(["finished", "failed"])]
        values = {name: ended[name].dropna().astype(str).unique() for name in ORIGIN}
        return {name: ", ".join(texts) for name, texts in values.items() if len(texts)}


def build_report(
    experiment: Experiment, runs: Sequence[Run], with_pairs: bool = True, notes: Sequence[str] = ()
) -> Report:
    """Build the report of runs, ended or not; it needs nothing but these and the predictions beside them.

    Args:
        experiment: its name, paper, tables and selection rule.
        runs: the runs with their states (`isobench.runs.state.add_states`), at least one.
        with_pairs: compare methods over shared seeds and dev examples too, which reads the runs' predictions.
        notes: what the page also says, such as why an analysis was not carried out.
    """
    runs = [replace(run, cfg=replace(run.cfg, experiment=experiment)) for run in runs]
    varying = find_varying_settings(runs)
    warnings = [warning for run in runs if run.record for warning in run.record.warnings]
    run_table = build_runs(runs, varying)
    epochs = build_epochs(runs, run_table, varying)
    run_table, configurations, rule = select_runs(run_table, experiment.selection, varying)
    tasks = {run.cfg.task.name: run.cfg.task for run in runs}
    pairs = ExamplePairs({run.folder.path.name: run.folder for run in runs}) if with_pairs else None
    cells = build_cells(run_table, experiment, tasks, varying, pairs)
    return Report(
        experiment=experiment,
        runs=run_table,
        epochs=epochs,
        cells=cells,
        configurations=configurations,
        varying=varying,
        rule=rule,
        epoch_rule=describe_epoch_rule(runs),
        settings=list_training_settings(runs),
        notes=[*list_mistakes(experiment, run_table), *describe_generation(runs), *dict.fromkeys(warnings), *notes],
    )


def _list_views(report: Report) -> list[TableView]:
    views = []
    for (name, part), cells in report.cells.groupby(["table", "part"], sort=False):
        content = find_content(report.experiment, name)
        what, _, form = content.what.partition("; ")  # the form tells the paper's number of seeds, not ours
        statistics = published.format_statistics(content.form, content.form)  # such as median (sd)
        title = f"{statistics} over seeds"
        if name:
            printed = name.replace("table", "Table ")
            title = f"{report.experiment.paper}, {printed}, beside ours: {what}; {statistics}"
        ours = cells[cells["kind"] != "reported"]
        lines: dict[tuple[Any, ...], Line] = {}
        for cell in cells.itertuples():
            is_reported = cell.kind == "reported"
            line = Line(cell.encoder, cell.method, cell.settings, cell.time, {}, is_reported)
            lines.setdefault((cell.encoder, cell.method, is_reported), line).cells[cell.column] = cell
        notes = _list_notes(content, ours, report.legend)
        if len(lines) > len(ours[["encoder", "method"]].drop_duplicates()):
            notes.append(f"{published.find_reported(content)[0]}: numbers of others that the paper repeats.")
        if form and name:
            notes.append(f"In the paper: {form}. Ours are the same statistics of our own runs.")
        columns = list(ours["column"].unique())
        title = f"{title} ({part})" if part else title
        views.append(TableView(name, part, title, columns, list(lines.values()), notes))
    return views


def _list_notes(content: PublishedTable, cells: pd.DataFrame, legend: str) -> list[str]:
    """Write the sentences below a table: what the marks mean, and how its columns differ from the paper's."""
    notes = [legend] if cells["p"].notna().any() else []
    variants: dict[str, str] = {}  # task -> how it differs from the paper's
    for column in content.columns.values():
        variants |= column.variants
    notes += [f"{task}: {variants[task]}." for task in cells["task"].dropna().unique() if task in variants]
    if AVERAGE in set(cells["column"]):
        notes.append(
            f"{AVERAGE}: the mean over the paper's {len(content.columns)} columns, if all of them ran. "
            "Ours are rounded; published.yaml says whether the paper's are."
        )
    if "time" in set(cells["kind"]):
        notes.append(
            "Minutes: of training per epoch, without evaluation; the paper's were measured on another machine."
        )
    return notes
