"""Find the runs that the arguments of status, report or dashboard mean."""

from collections.abc import Sequence
from dataclasses import replace

from isobench.common.errors import UserError
from isobench.common.garbage import collect_garbage_rarely
from isobench.common.terminal import print_note
from isobench.config.bounds import check_value
from isobench.config.command_line import check_typed_settings, split_config_dirs
from isobench.config.schema import Config, Selection, to_config
from isobench.runs.imports import list_imported_keys, read_imported_rows
from isobench.runs.labels import label_rows
from isobench.runs.layout import run_folder_name
from isobench.runs.listing import list_run_folders, read_run_rows
from isobench.runs.row import Row
from isobench.sweep.plan import compose_sweep, find_experiment_name, plan_runs
from isobench.sweep.replay import plan_saved_command
from isobench.sweep.saved_commands import SweepCommand, drop_launch_arguments, locate_command, read_commands

SELECTION_PREFIX = "experiment.selection."
GENERAL_SETTINGS = ("+experiment=", "output_dir=", "data.")  # they don't say which of an experiment's runs are meant


def read_selection(arguments: Sequence[str]) -> Selection:
    """Read the experiment's selection rule with the command line's changes; raise UserError if it is not valid."""
    with compose_sweep(arguments) as (_, base, _):
        selection = to_config(base).experiment.selection
    check_value("experiment.selection", selection, Selection)
    return selection


def drop_selection(arguments: Sequence[str]) -> list[str]:
    """Drop the arguments that change the selection rule only, and so do not say which runs are meant."""
    return [argument for argument in arguments if not argument.startswith(SELECTION_PREFIX)]


def are_general(overrides: Sequence[str]) -> bool:
    """Return True if overrides name at most an experiment, output folder, data and launcher, not which runs."""
    return all(text.startswith(GENERAL_SETTINGS) for text in drop_launch_arguments(list(overrides)))


def replace_foreign_parts(row: Row, own: Config, experiment: str | None) -> Row:
    """Replace what an imported run's config says of its analysis and its experiment by what the command line says.

    A report imports the function that ``analysis`` names, and a stranger wrote the config.
    """
    row.cfg = replace(row.cfg, analysis=own.analysis)
    if experiment is not None:
        row.cfg = replace(row.cfg, experiment=replace(own.experiment, name=experiment))
    return row


def read_analysis_target(arguments: Sequence[str]) -> str | None:
    """Read which function the command line's experiment names as its analysis; None if it has none."""
    with compose_sweep(drop_selection(arguments)) as (_, base, _):
        return base.analysis.get("_target_")


@collect_garbage_rarely()
def find_sweep_rows(arguments: Sequence[str], complete: bool = False) -> tuple[str, list[Row]]:
    """Find the runs of a sweep, or of an output folder.

    Arguments that only name an experiment, output folder, folder of configs, data and launcher mean the runs of all
    sweeps of this experiment that were started in the output folder, and those that ``isobench import`` brought
    there; without an experiment they mean every run there. Other arguments mean the runs that a sweep with these
    arguments has. A saved sweep that can't be planned any more is left out, with a line on standard error.

    Args:
        arguments: those of the command line.
        complete: raise UserError where a saved sweep would be left out.

    Returns:
        A title and the rows of the runs.

    Raises:
        UserError: there are no such runs, or the arguments are wrong.
    """
    check_typed_settings(arguments)
    with compose_sweep(arguments) as (loader, base, overrides):  # the overrides lack the folder of configs
        name, output_dir = find_experiment_name(base), base.output_dir
        is_general = are_general(overrides)
        config_dirs, _ = split_config_dirs(arguments)
        own = to_config(base)
        sweeps, imported = list[SweepCommand](), list[str]()
        if is_general:
            sweeps = [command for command in read_commands(output_dir) if name in (None, command.experiment)]
            imported = list_imported_keys(output_dir, name)
        if not sweeps and not imported and (name or not is_general):
            planned = plan_runs(loader, base, overrides)
            return name or "runs", [run.row for run in planned.values()]
    rows: dict[str, Row] = {}
    for command in sweeps:
        try:
            rows.update({key: run.row for key, run in plan_saved_command(command, output_dir, config_dirs).items()})
        except UserError as error:
            if complete:
                file = locate_command(output_dir, command)
                advice = f"mend that, name one sweep's settings, or remove {file} (then its runs belong to no sweep)"
                raise UserError(f"{error}; {advice}") from error
            print_note(f"left out: {error}")
    for row in read_imported_rows(output_dir, name, excluded=rows):
        rows[row.folder.key] = replace_foreign_parts(row, own, name)
    if name is None:
        other_rows = read_run_rows(output_dir, excluded={run_folder_name(key) for key in rows})
        rows.update({row.folder.key: row for row in other_rows})
    if not rows and (sweeps or imported or list_run_folders(output_dir)):
        raise UserError(f"none of the runs in {output_dir} can be shown, for the reasons above")
    if not rows:
        raise UserError(f"nothing was run in {output_dir} yet; name a sweep, e.g. +experiment=glue_isobn")
    label_rows(list(rows.values()))
    return name or f"runs in {output_dir}", list(rows.values())
