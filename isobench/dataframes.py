"""Load ended runs, their epochs and the table of their report as pandas DataFrames, for programs and notebooks.

The columns' types are pandas' own that allow missing values: ``Int64``, ``Float64``, ``boolean``, ``string``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import HydraException

from isobench.common.errors import UserError
from isobench.config.bounds import check_value
from isobench.config.schema import Experiment, to_config
from isobench.report.document import TidyColumns
from isobench.report.old_build import build_report
from isobench.report.table_rows import build_table_rows
from isobench.report.tidy_rows import build_epoch_columns, read_origin, read_outcome
from isobench.runs.grouping import (
    PROTOCOL_SETTINGS,
    SOURCE_SETTINGS,
    find_varying_settings,
    read_run_names,
    read_value,
)
from isobench.runs.layout import runs_folder
from isobench.runs.listing import read_ended_rows
from isobench.runs.plan import read_plans
from isobench.runs.row import Row, check_predictions, print_troubles
from isobench.sweep.plan import compose_sweep, keep_global_hydra

if TYPE_CHECKING:
    import pandas

# Texts that no run of a folder may have: their column is then one of texts all the same.
TEXT_COLUMNS = ("failure", "commit", "part", "settings", "seeds", "ours", "published", "published_of", "troubles")


def load_runs(folder: str | Path = "outputs", experiment: str | None = None) -> "pandas.DataFrame":
    """Load the ended runs of an output folder, one row a run, in the order of task, encoder, method and seed.

    The columns are: names, seed, the settings in which the runs differ (by their dotted names), where data and
    weights come from (``task.data``, ``encoder.weights``), status, failure, score and metrics of the reported epoch
    (x 100, as in reports), its isotropy, cost, and what the run was made with. Their types are pandas' own that allow
    missing values (``Int64``, ``Float64``, ``boolean``, ``string``). Data and weights need not be at hand.

    A run whose predictions have changed since it ended has the status ``damaged`` and no score; a line on standard
    error names it.

    Args:
        folder: the output folder, as of ``output_dir``, or any folder with its ``runs/``.
        experiment: load only the runs of this experiment: those that one of its sweeps asked for.

    Raises:
        UserError: there is no such folder, it has no such runs, or a record in it is damaged.
    """
    rows = read_checked_rows(folder, experiment)
    settings = list_settings(rows)
    return make_frame(
        [{**describe_run(row, settings), **read_outcome(row), **read_origin(row)} for row in rows],
    )


def load_epochs(folder: str | Path = "outputs", experiment: str | None = None) -> "pandas.DataFrame":
    """Load the evaluated epochs of the ended runs of an output folder, one row for each run and epoch.

    The rows are in the order of task, encoder, method, seed and epoch. The columns are: names, seed, settings and
    sources as in ``load_runs``; ``epoch`` (counted from 1), ``step`` (optimiser steps so far), ``score`` (the task's
    primary metric on its first dev split, x 100), and the epoch's isotropy, ``<matrix>/<measure>``, such as
    ``embedding/ev1``. A measure that an epoch lacks is missing. Runs without an evaluated epoch have no rows, and
    damaged ones have none either; a line on standard error names those.

    Args:
        folder: the output folder, as of ``output_dir``, or any folder with its ``runs/``.
        experiment: load only the runs of this experiment: those that one of its sweeps asked for.

    Raises:
        UserError: as ``load_runs`` does.
    """
    import pandas

    rows = read_checked_rows(folder, experiment)
    settings = list_settings(rows)
    runs = pandas.DataFrame([describe_run(row, settings) for row in rows], dtype=object)
    nothing: TidyColumns = {"key": [], "epoch": [], "step": [], "score": []}
    epochs = pandas.DataFrame(build_epoch_columns(rows, varying=[]) or nothing)
    own = ["key", *(name for name in epochs if name not in {*runs, *PROTOCOL_SETTINGS})]
    return set_types(runs.merge(epochs[own], on="key").astype(object))


def report_table(folder: str | Path = "outputs", experiment: str | None = None) -> "pandas.DataFrame":
    """Make the tables of a report: one row for each cell, in the order of the paper's tables.

    A cell is one encoder and method (a line of the table) in one column. ``isobench report`` writes the same cells
    into ``tables.tex`` and ``report.md``. ``table.pivot(index=["encoder", "method"], columns="column",
    values="mean")`` has the paper's shape, if there is one table with one part. The columns are:

    - ``table`` (its name in published.yaml, missing without a paper), ``part`` (which of the runs that may not be
      compared with each other, missing if all may), ``encoder``, ``method``, ``settings`` (of the configuration that
      was selected, missing if there was no choice), ``column`` (its title), ``task``;
    - ``mean`` and ``sd`` (divided by n - 1) over seeds, ``n`` (seeds with a number) and ``seeds``; in percent for
      scores, else in the column's unit (minutes, or an isotropy). A mean over an undefined score is missing;
    - ``difference`` of the mean from plain fine-tuning (``calibration=none``), in points, and its two-sided p:
      ``p`` (Welch's t-test), ``p_holm`` (the same after Holm's correction over all cells), ``p_permutation`` (exact),
      ``p_student`` (equal variances); ``effect`` (Hedges' g) with its 95% interval from ``effect_low`` to
      ``effect_high``. Missing where there is no test: plain fine-tuning, a single seed, another unit than percent;
    - ``ours`` (the statistics that the paper prints, as text), ``published`` (its cell as printed), ``published_of``
      (the encoder of that cell), ``verdict`` (within, above, below, not comparable) and ``why``; ``troubles`` (what
      went wrong in how many runs).

    Args:
        folder: the output folder, as of ``output_dir``, or any folder with its ``runs/``.
        experiment: take the runs of this experiment, and its paper's tables. None takes all runs of the folder, and
            the tables of the experiment that they have.

    Raises:
        UserError: as ``load_runs`` does; the runs are of several experiments, and none is named; or the experiment's
            selection rule can't be applied to these runs.
    """
    rows = read_checked_rows(folder, experiment)
    settings = find_experiment(rows, experiment)
    rows = [replace(row, cfg=replace(row.cfg, experiment=settings)) for row in rows]
    return make_frame(build_table_rows(build_report(settings, rows)))


def read_checked_rows(folder: str | Path, experiment: str | None) -> list[Row]:
    """Read the ended runs of an output folder, sorted; a damaged one has the state ``damaged`` and no record.

    Raises:
        UserError: there is no such folder, it has no such runs, or a record in it is damaged.
    """
    folder = Path(folder).expanduser()
    rows = read_ended_rows(str(folder))
    if experiment is not None:
        asked = find_keys_of_sweeps(str(folder), experiment)
        rows = [row for row in rows if row.cfg.experiment.name == experiment or row.folder.key in asked]
    if not rows:
        of = f" of {experiment}" if experiment else ""
        raise UserError(f"{runs_folder(str(folder))} has no ended runs{of}: name the folder that output_dir named")
    check_predictions(rows)
    print_troubles(rows)
    return sorted(map(add_state, rows), key=lambda row: (*read_run_names(row.cfg), row.cfg.seed))


def add_state(row: Row) -> Row:
    """Return the row of an ended run with its state: done, failed or damaged."""
    failed = row.record is not None and row.record.status == "failed"
    return replace(row, state="damaged" if row.trouble else "failed" if failed else "done")


def list_settings(rows: list[Row]) -> list[str]:
    """List the settings that tables of runs have columns for: protocol, sources, and what varies."""
    return list(dict.fromkeys([*PROTOCOL_SETTINGS, *SOURCE_SETTINGS, *find_varying_settings(rows)]))


def describe_run(row: Row, settings: Sequence[str]) -> dict[str, Any]:
    """Describe a run by its names and its values of settings; a setting that it lacks is None."""
    task, encoder, method = read_run_names(row.cfg)
    names = {"key": row.folder.path.name, "task": task, "encoder": encoder, "method": method, "seed": row.cfg.seed}
    values = {name: read_value(row, name) for name in settings}
    plain = {
        name: None if value == "-" else value if isinstance(value, bool | int | float | str | None) else str(value)
        for name, value in values.items()
    }
    return {**names, **plain}


def make_frame(rows: Sequence[dict[str, Any]]) -> "pandas.DataFrame":
    """Make a DataFrame of rows, its columns typed."""
    import pandas

    return set_types(pandas.DataFrame(rows, dtype=object))


def set_types(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """Give each column of a DataFrame of objects the type that its values have."""
    return table.astype({name: choose_type(name, table[name]) for name in table})


def choose_type(name: str, values: Iterable[Any]) -> str:
    """Choose the pandas type of a column from its values; None and NaN are missing values of any type."""
    kinds = {type(value) for value in values if value is not None and value == value}
    if not kinds:
        return "string" if name in TEXT_COLUMNS else "Float64"
    if kinds == {bool}:
        return "boolean"
    if kinds == {int}:
        return "Int64"
    return "Float64" if kinds <= {int, float} else "string"


def find_experiment(rows: list[Row], name: str | None) -> Experiment:
    """Find the settings of an experiment: those that its runs were started with, else those of today.

    Args:
        rows: the runs.
        name: the experiment's name; None means the one that the runs have, if any has one.

    Raises:
        UserError: the runs are of several experiments, there is no experiment of this name, or its settings, which
            stand in files that somebody else may have made, are out of bounds.
    """
    known = {own.name: own for row in reversed(rows) if (own := row.cfg.experiment).name is not None}
    if name is None:
        if len(known) > 1:
            raise UserError(f"the runs are of several experiments: name one of them, {', '.join(sorted(known))}")
        found = next(iter(known.values()), Experiment())
    elif name in known:
        found = known[name]
    else:
        try:
            with keep_global_hydra(), compose_sweep([f"+experiment={name}"]) as (_, base, _):
                found = replace(to_config(base).experiment, name=name)
        except HydraException as error:
            raise UserError(f"isobench has no experiment {name}, and none of the runs was started by it") from error
    check_value("experiment", found, Experiment)
    return found


def find_keys_of_sweeps(folder: str, experiment: str) -> set[str]:
    """Return the keys of the runs that an experiment's sweeps and imported bundles in an output folder ask for.

    A run may have been carried out by another command before.
    """
    return {identity.key for plan in read_plans(folder, experiment) for _, identity in plan.runs}
