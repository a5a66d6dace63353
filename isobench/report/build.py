"""Build a report from runs: everything that a page, a terminal, a file or a claim shows of an experiment."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import pandas as pd

from isobench.common.terminal import format_count, name_some
from isobench.config.schema import Experiment
from isobench.papers import published
from isobench.papers.folders import find_papers
from isobench.report.cells import build_cells, find_content, list_mistakes
from isobench.report.methods import compare_methods, list_comparisons, tabulate_comparisons, write_verdict
from isobench.report.paired_tests import compare_pairs, find_unlearned, read_predictions
from isobench.report.selection import select_runs
from isobench.report.tables import BASELINE, build_epochs, build_runs, list_scale_differences
from isobench.report.wording import (
    describe_early_ends,
    describe_epoch_rule,
    describe_generation,
    list_training_settings,
)
from isobench.runs.grouping import find_varying_settings
from isobench.runs.run import Run, describe_failure
from isobench.statistics.seeds import ALPHA

TIME_NOTE = (
    "Training time: of the fastest seed, relative to plain fine-tuning's; of several tasks the median and the range. "
    "Comparable only if the machine did nothing else."
)
LEGEND = (
    f"* better, † worse than {BASELINE}: p < {ALPHA} after Holm's correction over {{}} (t-test over seeds, paired "
    "where both have the same)."
)
ORIGIN = ("commit", "code_changed", "python", "torch", "machine", "data", "weights")  # columns of ``runs``


@dataclass(frozen=True)
class Line:
    """A line of a table: an encoder and method with its cells by column, or others' numbers in the paper."""

    encoder: str
    method: str
    settings: str
    time: str
    cells: dict[str, Any]
    is_reported: bool


@dataclass(frozen=True)
class TableView:
    """Hold one table of a report: our lines, then those that the paper repeats from others, and notes."""

    title: str
    columns: list[str]
    lines: list[Line]
    notes: list[str]

    @property
    def own_lines(self) -> list[Line]:
        return [line for line in self.lines if not line.is_reported]

    @property
    def own_cells(self) -> list[Any]:
        return [cell for line in self.own_lines for cell in line.cells.values()]


@dataclass(frozen=True)
class Report:
    """Hold what the runs of one experiment show."""

    experiment: Experiment  # its name, paper, tables and selection rule
    runs: pd.DataFrame  # docs/reference/tables.md describes this and the next two
    epochs: pd.DataFrame
    cells: pd.DataFrame
    configurations: pd.DataFrame  # all that were tried (`isobench.report.selection.CONFIGURATIONS`)
    rule: str = ""  # how configurations were selected, in words
    epoch_rule: str = ""  # which epoch of a run is reported
    settings: dict[str, str] = field(default_factory=dict)  # what the runs were trained with, by name
    notes: list[str] = field(default_factory=list)  # sentences on generation, truncation and warnings
    unlearned: list[str] = field(default_factory=list)  # tasks with no mean above the largest class

    @property
    def name(self) -> str:
        return self.experiment.name or name_some(self.runs["task"].unique())

    @property
    def selection(self) -> str:
        """How configurations and epochs were selected, in words."""
        return f"{self.rule} From each run: its {self.epoch_rule}."

    @cached_property
    def views(self) -> list[TableView]:
        """The tables as they are printed, in the paper's order for each part."""
        return _list_views(self.experiment, self.cells)

    @cached_property
    def methods(self) -> pd.DataFrame:
        """A row for each method: what it gains over all its tasks (`isobench.report.methods.METHODS`)."""
        return compare_methods(self.cells, self.runs)

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """Every method against plain fine-tuning over all its tasks, as texts."""
        return tabulate_comparisons(self.methods)

    @cached_property
    def verdict(self) -> str:
        """Say what the comparisons with plain fine-tuning show, in one or two sentences."""
        ended = int(self.runs["status"].isin(["finished", "failed"]).sum())
        return write_verdict(self.cells, self.methods, ended, len(self.runs), self.unlearned)

    @property
    def described_settings(self) -> str:
        """Say in one line what the runs were trained with; empty if that is not known."""
        return " · ".join(f"{name} {value}" for name, value in self.settings.items())

    @property
    def states(self) -> dict[str, int]:
        """State of a run -> number of runs; a finished run is done."""
        return dict(Counter("done" if status == "finished" else status for status in self.runs["status"]))

    @property
    def scale(self) -> list[str]:
        """How the setting differs from the paper's, in words; empty if it does not."""
        return list_scale_differences(self.runs)

    @property
    def scale_note(self) -> str:
        """Say how the setting differs from the paper's, or which part of the data was used; empty if in nothing."""
        what = "Not the paper's setting" if self.experiment.paper in find_papers() else "Data"
        return f"{what}: {'; '.join(self.scale)}." if self.scale else ""

    @property
    def failures(self) -> list[str]:
        """One line for each run that failed, predicts one class, or is damaged."""
        lines = []
        for run in self.runs[self.runs["failure"].notna() | self.runs["message"].notna()].itertuples():
            about = f"{run.task}, {run.encoder}, {run.method}, seed {run.seed}"
            lines.append(f"{about}: {describe_failure(run.failure or 'damaged')} {run.message or ''}".strip())
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
    """Build the report of runs with their states, ended or not; it needs nothing but these.

    ``with_pairs`` reads the runs' predictions: it compares methods over shared seeds and dev examples too, and says
    where no method's mean is above the largest class alone.
    ``notes`` are what the page also says, such as why an analysis was not carried out.
    """
    runs = [replace(run, cfg=replace(run.cfg, experiment=experiment)) for run in runs]
    varying = find_varying_settings(runs)
    warnings = [warning for run in runs if run.record for warning in run.record.warnings]
    run_table = build_runs(runs, varying)
    epochs = build_epochs(runs, run_table, varying)
    run_table, configurations, rule = select_runs(run_table, experiment.selection, varying)
    tasks = {run.cfg.task.name: run.cfg.task for run in runs}
    folders = {run.folder.path.name: run.folder for run in runs}
    read = cache(lambda key, split, seed: read_predictions(folders[key], split, seed))  # each file once
    pairs = partial(compare_pairs, read) if with_pairs else None
    cells = build_cells(run_table, experiment, tasks, varying, pairs)
    return Report(
        experiment=experiment,
        runs=run_table,
        epochs=epochs,
        cells=cells,
        configurations=configurations,
        rule=rule,
        epoch_rule=describe_epoch_rule(runs),
        settings=list_training_settings(runs),
        notes=[
            *list_mistakes(experiment, run_table),
            *describe_early_ends(runs),
            *describe_generation(runs),
            *dict.fromkeys(warnings),
            *notes,
        ],
        unlearned=find_unlearned(runs, run_table) if with_pairs else [],
    )


def _list_views(experiment: Experiment, cells: pd.DataFrame) -> list[TableView]:
    """Arrange cells as tables: one for each table and part, titled as published.yaml describes it."""
    views, tests = [], format_count(len(list_comparisons(cells)), "comparison")
    for (name, part), of_view in cells.groupby(["table", "part"], sort=False):
        content = find_content(experiment, name)
        what, _, form = content.what.partition("; ")  # "accuracy; mean over 5 seeds": the paper's seeds, not ours
        names = [statistic.replace("_", " ") for statistic in content.form]
        title = f"{published.format_statistics(content.form, names)} over seeds"  # such as median (sd)
        if name:
            place = f"{experiment.paper}, {name.replace('table', 'Table ')}"
            is_printed = of_view["published"].notna().any()
            title = (
                f"{place}, beside ours: {what}; {title}" if is_printed else f"Ours, in the form of {place}: {title}"
            )
        lines: dict[tuple[Any, ...], Line] = {}  # a line for each encoder and method, with a cell a column
        for cell in of_view.itertuples():
            is_reported = cell.kind == "reported"
            line = Line(cell.encoder, cell.method, cell.settings, cell.time, {}, is_reported)
            lines.setdefault((cell.encoder, cell.method, is_reported), line).cells[cell.column] = cell
        ours = of_view[of_view["kind"] != "reported"]
        notes = [LEGEND.format(tests)] if ours["p"].notna().any() else []
        for column in content.columns.values():
            notes += [f"{task}: {how}." for task, how in column.variants.items() if task in set(ours["task"])]
        if form and name:
            notes.append(f"In the paper: {form}. Ours are the same statistics of our own runs.")
        title = f"{title} ({part})" if part else title
        views.append(TableView(title, list(ours["column"].unique()), list(lines.values()), notes))
    return views
