"""Build a report from runs: everything that a page, a terminal, a file or a claim shows of an experiment."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from isobench.config.schema import Experiment
from isobench.report.cells import build_cells
from isobench.report.methods import compare_methods
from isobench.report.notes import describe_epoch_rule, describe_generation, list_warnings
from isobench.report.pairs import ExamplePairs
from isobench.report.selection import select_runs
from isobench.report.sentences import describe_evidence, write_verdict
from isobench.report.tables import build_epochs, build_runs, list_scale_differences
from isobench.runs.grouping import find_varying_settings
from isobench.runs.run import Run

ORIGIN = ("commit", "code_changed", "python", "torch", "machine", "data", "weights")  # columns of ``runs``


@dataclass(frozen=True)
class Report:
    """What the runs of one experiment show.

    Attributes:
        experiment: its name, paper, tables and selection rule.
        runs, epochs, cells: the tables that `isobench.report.tables` describes.
        configurations: every configuration that was tried (`summarize_configurations`); empty if each method has one.
        varying: dotted names of the settings in which the runs differ.
        selection: how configurations and epochs were selected, in words.
        notes: sentences on generation, truncation and warnings.
    """

    experiment: Experiment
    runs: pd.DataFrame
    epochs: pd.DataFrame
    cells: pd.DataFrame
    configurations: pd.DataFrame
    varying: list[str]
    selection: str
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.experiment.name or "runs"

    @cached_property
    def methods(self) -> pd.DataFrame:
        """A row for each method: what it gains over all its tasks (`isobench.report.methods.METHODS`)."""
        return compare_methods(self.cells, self.runs)

    @property
    def states(self) -> dict[str, int]:
        """State of a run -> number of runs; a finished run is done."""
        return dict(Counter("done" if status == "finished" else status for status in self.runs["status"]))

    @property
    def scale(self) -> list[str]:
        """How the setting differs from the paper's, in words; empty if it does not."""
        return list_scale_differences(self.runs)

    @cached_property
    def evidence(self) -> list[str]:
        """Sentences on what the runs support and what they can't support."""
        return describe_evidence(self.cells, self.methods)

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
        return {name: ", ".join(own) for name, own in values.items() if len(own)}


def build_report(
    experiment: Experiment, rows: Sequence[Run], with_pairs: bool = True, notes: Sequence[str] = ()
) -> Report:
    """Build the report of runs, ended or not; it needs nothing but these rows and the predictions beside them.

    Args:
        experiment: its name, paper, tables and selection rule.
        rows: the runs with their states (`isobench.runs.state.add_states`), at least one.
        with_pairs: compare methods over shared seeds and dev examples too, which reads the runs' predictions.
        notes: what the page also says, such as why an analysis was not carried out.

    Raises:
        UserError: the selection rule can't be applied to these runs.
    """
    rows = [replace(row, cfg=replace(row.cfg, experiment=experiment)) for row in rows]
    varying = find_varying_settings(rows)
    runs = build_runs(rows, varying)
    epochs = build_epochs(rows, runs, varying)
    runs, configurations, rule = select_runs(runs, experiment.selection, varying)
    tasks = {row.cfg.task.name: row.cfg.task for row in rows}
    folders: Mapping[str, Path] = {row.folder.path.name: row.folder.path for row in rows}
    cells = build_cells(runs, experiment, tasks, varying, ExamplePairs(folders) if with_pairs else None)
    return Report(
        experiment=experiment,
        runs=runs,
        epochs=epochs,
        cells=cells,
        configurations=configurations,
        varying=varying,
        selection=f"{rule} From each run: its {describe_epoch_rule(rows)}.",
        notes=[*describe_generation(rows), *list_warnings(rows), *notes],
    )
