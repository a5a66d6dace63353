"""Run ``isobench prune``: list the runs that nothing produces any more, and remove them on request."""

import contextlib
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from isobench.cli.arguments import FlagParser
from isobench.cli.guard import run_guarded
from isobench.common.errors import UserError
from isobench.common.garbage import collect_garbage_rarely
from isobench.common.terminal import format_count, replace_control_characters
from isobench.config.command_line import check_typed_settings, split_config_dirs
from isobench.papers.folders import find_config_folders
from isobench.runs import heartbeat
from isobench.runs.folder import RunFolder
from isobench.runs.imports import list_imported_keys
from isobench.runs.jobs import find_queued_jobs
from isobench.runs.layout import RECORD_FILE, marker_file, run_folder_name, runs_folder
from isobench.runs.listing import list_run_folders, read_stored_runs
from isobench.runs.record_file import read_record_file
from isobench.runs.row import format_run_name
from isobench.sweep.plan import compose_sweep
from isobench.sweep.replay import plan_saved_command
from isobench.sweep.saved_commands import read_commands


def main() -> None:
    """Parse the command line and run the command."""
    parser = FlagParser(
        prog="isobench prune",
        usage="%(prog)s [-h] [--yes] [output_dir=FOLDER] [SETTING=VALUE ...]",
        description="Lists the runs that no command produces any more, then asks whether to remove them. Such runs "
        "have settings that give another key now, because data, weights or code have changed; or their experiment "
        "has changed, and no sweep that was started in this output folder asks for them. Runs that can't be "
        "judged are kept.",
        allow_abbrev=False,
    )
    parser.add_argument("--yes", action="store_true", help="remove them without asking")
    options, settings = parser.parse_sweep_arguments()
    run_guarded(lambda: prune(settings, options.yes))


def prune(settings: Sequence[str], yes: bool) -> None:
    """List the runs that nothing produces any more; remove them if ``yes``, or if the user confirms it.

    Runs that can't be judged are listed too, and never removed.

    Raises:
        UserError: the folder is not marked as isobench's, or a sweep can't be planned any more.
    """
    check_typed_settings(settings)
    with compose_sweep(settings) as (_, base, _):
        output_dir = base.output_dir
    require_output_folder(output_dir)
    config_dirs, _ = split_config_dirs(settings)
    with collect_garbage_rarely():
        orphans, unjudged, count = judge_runs(output_dir, config_dirs)
    for folder, reason in orphans:
        print(replace_control_characters(f"{folder}  {reason}"))
    for folder, reason in unjudged:
        print(replace_control_characters(f"{folder}  can't be judged, so it is kept: {reason}"))
    if not orphans:
        print(describe_kept_runs(runs_folder(output_dir), count, len(unjudged)))
        return
    size = sum(file.lstat().st_size for folder, _ in orphans for file in folder.rglob("*") if file.is_file())
    print(f"{format_count(len(orphans), 'run')} that nothing produces any more, {size / 2**20:.1f} MiB.")
    if yes or ask_confirmation():
        for folder, _ in orphans:
            with RunFolder(output_dir, folder.name).lock() as is_locked:
                if is_locked:
                    shutil.rmtree(folder)
        print(f"Removed {sum(not folder.exists() for folder, _ in orphans)}.")


def require_output_folder(output_dir: str) -> None:
    """Raise UserError unless a folder is marked as isobench's; say what to do with one of an earlier version."""
    folder, marker = Path(output_dir), marker_file(output_dir)
    if not folder.is_dir():
        raise UserError(f"{folder} does not exist: nothing was run there; set output_dir=FOLDER")
    if marker.is_file():
        return
    if not list_run_folders(output_dir):
        raise UserError(
            f"{folder} is no output folder of isobench, so nothing is removed there: set output_dir=FOLDER"
        )
    raise UserError(
        f"{folder} lacks the file {marker.name}, which earlier versions of isobench did not write, so nothing is "
        f"removed there; if isobench made this folder, run touch {shlex.quote(str(marker))} and repeat this command"
    )


def describe_kept_runs(folder: Path, count: int, unjudged: int) -> str:
    """Say in one sentence why no run is removed: there are none, all are still produced, or can't be judged."""
    if not count:
        return f"There are no runs in {folder}."
    if unjudged:
        return (
            f"{format_count(unjudged, 'run')} of {count} in {folder} can't be judged; all others are still produced."
        )
    return f"Every run in {folder} is still produced."


def ask_confirmation() -> bool:
    """Ask the user on the terminal whether to remove the runs; without a terminal the answer is no."""
    if not sys.stdin.isatty():
        print("Not removed: --yes removes them.")
        return False
    return input("Remove them? [y/N] ").strip().lower() in ("y", "yes")


def judge_runs(
    output_dir: str, config_dirs: Sequence[str] = ()
) -> tuple[list[tuple[Path, str]], list[tuple[Path, str]], int]:
    """Find the runs that nothing produces any more; running, queued and imported runs are never among them.

    A run is kept if its config still gives its key. A run of an experiment is kept only if, in addition, the grid of
    the experiment has not changed, or a sweep that was started in this output folder asks for the run. Experiments
    are also read from the user's folders. If an experiment is not found, its runs can't be judged, except those that
    a sweep asks for.

    Args:
        output_dir: the output folder.
        config_dirs: the folders of configs that the user gave.

    Returns:
        Three values: the folders of runs that nothing produces any more, each with the reason; the folders that can't
        be judged, each with the reason (an unreadable config or record, missing data or weights); the number of runs.

    Raises:
        UserError: a sweep can't be planned any more.
    """
    queued = find_queued_jobs(output_dir)
    imported = set(map(run_folder_name, list_imported_keys(output_dir)))
    planned: set[str] | None = None  # names of the folders that the sweeps ask for; computed when first needed
    orphans, unjudged, count = [], [], 0
    grids = read_grids(config_dirs)
    for run in read_stored_runs(output_dir):
        count += 1
        folder, cfg = run.folder, run.cfg
        if folder.name in queued or folder.name in imported or heartbeat.read_live_heartbeat(folder):
            continue
        problem = run.problem or find_trouble(folder)
        if cfg is None or problem:
            unjudged.append((folder, str(problem)))
            continue
        name = f"{format_run_name(cfg)} (experiment {cfg.experiment.name or 'none'})"
        if not run.has_own_key:
            orphans.append((folder, f"{name}: its settings have another key now"))
        elif (experiment := cfg.experiment.name) and cfg.experiment.grid not in grids.get(experiment, []):
            if planned is None:
                planned = {
                    run_folder_name(key)
                    for command in read_commands(output_dir)
                    for key in plan_saved_command(command, output_dir, config_dirs)
                }
            if folder.name in planned:
                continue
            if experiment in grids:
                orphans.append((folder, f"{name}: the experiment has changed"))
            else:
                unjudged.append((folder, f"{name}: add --config-dir=FOLDER with experiment/{experiment}.yaml"))
    return orphans, unjudged, count


def find_trouble(folder: Path) -> str | None:
    """Return why a run's folder can't be trusted, apart from its config; None if nothing is wrong with it."""
    if folder.is_symlink():
        return "it is a link to another folder"
    try:
        read_record_file(folder / RECORD_FILE)
    except FileNotFoundError:
        return None  # the run has not ended
    except (UserError, OSError) as error:
        return str(error)
    return None


def read_grids(config_dirs: Sequence[str]) -> dict[str, list[dict]]:
    """Read the grids of isobench's experiments and of those in the user's folders: experiment's name -> grids.

    Files that can't be read are left out. A name has several grids if several files give it to their experiment.
    """
    grids: dict[str, list[dict]] = {}
    for folder in (*find_config_folders(), *map(Path, config_dirs)):
        for file in folder.expanduser().glob("experiment/*.yaml"):
            with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
                content = yaml.safe_load(file.read_text(encoding="utf-8"))
                experiment = content.get("experiment") if isinstance(content, dict) else None
                if isinstance(experiment, dict):
                    grids.setdefault(experiment.get("name") or file.stem, []).append(experiment.get("grid") or {})
    return grids
