"""Functions for Python programs and notebooks: carry out a run, and load finished runs into a table.

``import isobench`` gives them as ``isobench.run`` and ``isobench.load_runs``.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from isobench.common.errors import UserError
from isobench.common.resources import conf_dir
from isobench.config.command_line import check_typed_settings
from isobench.config.explain import explain_config_error
from isobench.config.schema import Config, register_schema, to_config
from isobench.data.own_task import complete_config
from isobench.report.tidy_rows import read_origin, read_outcome
from isobench.runs.ended import read_ended_rows
from isobench.runs.grouping import (
    PROTOCOL_SETTINGS,
    SOURCE_SETTINGS,
    find_varying_settings,
    read_run_names,
    read_value,
)
from isobench.runs.imports import read_imports
from isobench.runs.layout import runs_folder
from isobench.runs.record import RunRecord
from isobench.runs.row import Row, check_predictions, print_troubles
from isobench.sweep.plan import convert_to_overrides
from isobench.sweep.replay import plan_saved_command
from isobench.sweep.saved_commands import MULTIRUN_FLAGS, read_commands
from isobench.training.execute import train_if_needed

if TYPE_CHECKING:
    import pandas

TEXT_COLUMNS = ("failure", "commit")  # texts that no run may have


def run(overrides: Sequence[str] = ()) -> RunRecord:
    """Carry out one run, unless it is finished, and return its record.

    The result is kept in ``output_dir`` as that of a command is: the same run is never carried out twice.

    Args:
        overrides: settings as on the command line, such as ``["calibration=isobn_paper", "seed=2"]``; also
            ``["--config-dir", FOLDER]`` for YAML of your own.

    Returns:
        The record. Its ``status`` is ``failed`` if the run failed, and ``failure`` then says why.

    Raises:
        UserError: a setting, file or package is wrong or missing, or another process is carrying out the run. Nothing
            is recorded then.
    """
    check_overrides(overrides)
    cfg = compose_run(overrides)
    if cfg.dry_run or cfg.analysis:
        raise UserError(
            "isobench.run carries out one run, no dry_run and no analysis: use the command line for these"
        )
    if cfg.experiment.grid:
        raise UserError(
            "isobench.run carries out one run, and an experiment's grid has several: use the command line"
        )
    row, _ = train_if_needed(cfg, time.time())
    if row.record is None:
        raise UserError(f"another process is carrying out this run: {row.folder.path}")
    return row.record


def check_overrides(overrides: Sequence[str]) -> None:
    """Raise UserError unless the overrides are a list of settings, each given once, without a sweep's flag."""
    if isinstance(overrides, str):
        raise UserError(f"overrides must be a list of settings: isobench.run({overrides.split()})")
    if not isinstance(overrides, list | tuple) or not all(isinstance(text, str) for text in overrides):
        raise UserError("overrides must be a list of texts, each a setting: isobench.run(['seed=2'])")
    if flags := set(overrides).intersection(MULTIRUN_FLAGS):
        raise UserError(f"isobench.run carries out one run, so leave out {min(flags)}, or call it for each run")
    check_typed_settings(overrides)


def compose_run(overrides: Sequence[str]) -> Config:
    """Compose the config of one run, its task completed from the user's own files if it reads any.

    Raises:
        UserError: there is no such setting, or a value that it can't have.
    """
    register_schema()
    try:
        with keep_global_hydra(), initialize_config_dir(conf_dir(), version_base="1.3"):
            return complete_config(to_config(compose("config", convert_to_overrides(overrides))))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain_config_error(error)) from error


@contextmanager
def keep_global_hydra() -> Iterator[None]:
    """Let Hydra compose inside a program that uses Hydra itself, whose own state is put back afterwards."""
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = before  # the instance may be another one by now


def load_runs(folder: str | Path = "outputs", experiment: str | None = None) -> "pandas.DataFrame":
    """Load the ended runs of an output folder, one row a run, in the order of task, encoder, method and seed.

    The columns are: names, seed, the settings in which the runs differ (by their dotted names), where data and
    weights come from (``task.data``, ``encoder.weights``), status, failure, score and metrics of the reported epoch
    (x 100, as in reports), its isotropy, cost, and what the run was made with. Their types are pandas' own that allow
    missing values (``Int64``, ``Float64``, ``boolean``, ``string``). Data and weights need not be at hand.

    A run whose predictions have changed since it ended has the status ``damaged`` and no score; a line on standard
    error names it.

    Args:
        folder: the output folder, as of ``output_dir``.
        experiment: load only the runs of this experiment: those that one of its sweeps asked for.

    Raises:
        UserError: there is no such folder, it has no such runs, or a record in it is damaged.
    """
    import pandas

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
    rows = [replace(row, state="damaged") if row.trouble else row for row in rows]
    rows.sort(key=lambda row: (*read_run_names(row.cfg), row.cfg.seed))
    settings = list(dict.fromkeys([*PROTOCOL_SETTINGS, *SOURCE_SETTINGS, *find_varying_settings(rows)]))
    table = pandas.DataFrame([describe_row(row, settings) for row in rows], dtype=object)
    return table.astype({name: choose_type(name, table[name]) for name in table})


def describe_row(row: Row, settings: Sequence[str]) -> dict[str, Any]:
    """Describe a run by names, values of settings, outcome and origin; a setting that it lacks is None."""
    task, encoder, method = read_run_names(row.cfg)
    names = {"key": row.folder.path.name, "task": task, "encoder": encoder, "method": method, "seed": row.cfg.seed}
    values = {name: read_value(row, name) for name in settings}
    plain = {
        name: None if value == "-" else value if isinstance(value, bool | int | float | str | None) else str(value)
        for name, value in values.items()
    }
    return {**names, **plain, **read_outcome(row), **read_origin(row)}


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


def find_keys_of_sweeps(folder: str, experiment: str) -> set[str]:
    """Return the keys of the runs that an experiment's sweeps and imported bundles in an output folder ask for.

    A run may have been carried out by another command before. A sweep that can't be planned any more is left out.
    """
    keys = {key for bundle in read_imports(folder) if bundle.experiment == experiment for key in bundle.keys}
    for command in read_commands(folder):
        if command.experiment == experiment:
            with keep_global_hydra():
                keys |= plan_or_nothing(command, folder)
    return keys


def plan_or_nothing(command: Any, folder: str) -> set[str]:
    """Return the keys of a saved sweep's runs; none if its data, weights or settings are gone."""
    try:
        return set(plan_saved_command(command, folder))
    except UserError:
        return set()
