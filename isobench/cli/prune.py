"""List the runs that no plan of the output folder has, then ask whether to remove them.

Every command that starts runs writes its plan; the same command, given again after data, grid or code have changed,
replaces it, and the runs that only the former plan had are listed here. To give up a sweep, remove its file from
plans/ first: each begins with its command. Runs that can't be read are kept. Nothing is removed where a plan can't be
read, or where no plan names a run.

Example: isobench prune output_dir=outputs
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from isobench.cli.command import CommandParser, read_output_dir, run_guarded
from isobench.common.environment import collect_garbage_rarely
from isobench.common.errors import UserError, refuse
from isobench.common.terminal import format_count
from isobench.runs.folder import RECORD_FILE, RunFolder, marker_file, plans_folder, run_folder_name, runs_folder
from isobench.runs.plan import list_run_folders, read_ended_run, read_intact_plans
from isobench.runs.run import format_run_name
from isobench.runs.state import find_queued_jobs, read_heartbeat, read_live_heartbeat


def main() -> None:
    parser = CommandParser("isobench prune", __doc__, "[output_dir=FOLDER]", page="sweeps")
    parser.add_argument("--yes", action="store_true", help="remove them without asking")
    options, settings = parser.parse_sweep_arguments()
    run_guarded(lambda: prune(settings, options.yes))


def prune(settings: Sequence[str], yes: bool) -> None:
    """List the runs that no plan has; remove them if ``yes``, or if the user confirms it."""
    output_dir = read_output_dir(settings, "isobench prune")
    marker = marker_file(output_dir)
    refuse((not marker.is_file(), f"nothing was run in {output_dir}, or it is no output folder: no {marker.name}"))
    with collect_garbage_rarely():
        orphans, unreadable = find_orphans(output_dir)
    for folder, name in orphans:
        print(f"{folder}  {name}")
    for folder, reason in unreadable:
        print(f"{folder}  is in no plan, and is kept because it can't be read: {reason}")
    if not orphans:
        print(f"No run in {runs_folder(output_dir)} is to be removed.")
        print(f"To give up one of several sweeps, first remove its files in {plans_folder(output_dir)}.")
        return
    size = sum(file.lstat().st_size for folder, _ in orphans for file in folder.rglob("*") if file.is_file())
    print(f"{format_count(len(orphans), 'run')} in no plan, {size / 2**20:.1f} MiB.")
    if not (yes or sys.stdin.isatty()):
        print("Not removed: --yes removes them.")
    elif yes or input("Remove them? [y/N] ").strip().lower() in ("y", "yes"):
        still, _ = find_orphans(output_dir)  # a plan may have come while it asked
        orphans = [orphan for orphan in orphans if orphan in still]
        for folder, _ in orphans:
            with RunFolder(output_dir, folder.name).lock() as is_locked:
                if is_locked:
                    shutil.rmtree(folder)
        print(f"Removed {sum(not folder.exists() for folder, _ in orphans)}.")


def find_orphans(output_dir: str) -> tuple[list[tuple[Path, str]], list[tuple[Path, str]]]:
    """Find the folders of runs that no plan has, none of them running or queued, each with the run's name.

    The second list has the folders in no plan that can't be read, each with the reason. UserError if a plan can't be
    read, or if there are runs and no plan names one of them.
    """
    plans, troubles = read_intact_plans(output_dir)
    planned = {run_folder_name(identity.key) for plan in plans for _, identity in plan.runs}
    if troubles:
        raise UserError(f"nothing is removed, because a plan can't be read: {troubles[0]}")
    folders = list_run_folders(output_dir)
    # Missing plans, and those of other folders, say nothing of what is still needed.
    if folders and planned.isdisjoint(folder.name for folder in folders):
        remedy = f"repeat the commands that you still need, or remove {runs_folder(output_dir)} if it is none"
        raise UserError(f"nothing is removed: {output_dir} has no plan that names one of its runs; {remedy}")
    kept = planned | find_queued_jobs(output_dir).keys()
    orphans, unreadable = [], []
    for folder in folders:
        if folder.name in kept or read_live_heartbeat(folder):
            continue
        try:
            refuse((folder.is_symlink(), "it is a link to another folder"))
            if read_heartbeat(folder) and not os.path.lexists(folder / RECORD_FILE):
                name = "a run that has not ended"
            else:
                cfg = read_ended_run(output_dir, folder).cfg
                name = f"{format_run_name(cfg)} (experiment {cfg.experiment.name or 'none'})"
            orphans.append((folder, name))
        except UserError as error:
            unreadable.append((folder, str(error)))
    return orphans, unreadable
