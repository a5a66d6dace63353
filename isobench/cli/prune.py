"""python -m isobench.prune: list, and after asking remove, runs that no command or experiment produces any more."""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from isobench.cli.guard import run_guarded
from isobench.common.resources import conf_dir
from isobench.runs import heartbeat
from isobench.runs.folder import RunFolder
from isobench.runs.identity import identify
from isobench.runs.jobs import find_queued_jobs
from isobench.runs.layout import run_folder_name, runs_folder
from isobench.runs.listing import list_run_folders, read_run_config
from isobench.sweep.plan import compose_sweep, plan_saved_command
from isobench.sweep.saved_commands import read_commands
from isobench.training.execute import format_run_name


def main() -> None:
    """The command line; exit codes as for ``python -m isobench``."""
    parser = argparse.ArgumentParser(
        prog="python -m isobench.prune",
        description="Lists the runs that nothing produces any more: their data, weights or code have changed, so "
        "that their settings have another key now, or their experiment has changed, and no sweep given in this "
        "output folder asks for them. Asks, then removes them.",
        allow_abbrev=False,
    )
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    parser.add_argument("settings", nargs="*", metavar="output_dir=FOLDER", help="and other settings, e.g. data.root")
    options = parser.parse_args()
    run_guarded(lambda: prune(options.settings, options.yes))


def prune(settings: Sequence[str], yes: bool) -> None:
    """List what is not produced any more; remove it if ``yes``, or if the user says so."""
    with compose_sweep(settings) as (_, base, _):
        output_dir = base.output_dir
    found = list(find_orphan_runs(output_dir))
    for folder, name in found:
        print(f"{folder}  {name}")
    if not found:
        print(f"Every run in {runs_folder(output_dir)} is still produced.")
        return
    size = sum(file.stat().st_size for folder, _ in found for file in folder.rglob("*") if file.is_file())
    print(f"{len(found)} runs that nothing produces any more, {size / 2**20:.1f} MiB.")
    if yes or ask_confirmation():
        for folder, _ in found:
            with RunFolder(output_dir, folder.name).lock() as ours:
                if ours:
                    shutil.rmtree(folder)
        print(f"Removed {sum(not folder.exists() for folder, _ in found)}.")


def ask_confirmation() -> bool:
    """Ask on the terminal; without one, nothing is removed."""
    if not sys.stdin.isatty():
        print("Not removed: --yes removes them.")
        return False
    return input("Remove them? [y/N] ").strip().lower() in ("y", "yes")


def find_orphan_runs(output_dir: str) -> Iterator[tuple[Path, str]]:
    """Run folders that nothing produces any more, and why; never one that is at work or waited for.

    A run's own config must give its key today. A run of an experiment must also be in that experiment: its grid
    is what it was, or one of the sweeps given in this output folder still asks for the run.

    Raises:
        UserError: data, weights or a sweep that are not there, for then nothing can be said of any key.
    """
    waiting = find_queued_jobs(output_dir)
    wanted: set[str] | None = None  # by the sweeps; planned once it is needed
    for folder in list_run_folders(output_dir):
        if folder.name in waiting or heartbeat.read_live_heartbeat(folder):
            continue
        cfg = read_run_config(folder)
        if cfg is None:
            yield folder, "a config that can't be read, or is none any more"
            continue
        name = f"{format_run_name(cfg)} (experiment {cfg.experiment.name or 'none'})"
        if run_folder_name(identify(cfg).key) != folder.name:
            yield folder, f"{name}: its settings have another key now"
        elif cfg.experiment.name and cfg.experiment.grid != read_grid(cfg.experiment.name):
            if wanted is None:
                wanted = {
                    run_folder_name(key)
                    for command in read_commands(output_dir)
                    for key in plan_saved_command(command, output_dir)
                }
            if folder.name not in wanted:
                yield folder, f"{name}: the experiment has changed"


def read_grid(experiment: str) -> dict | None:
    """An experiment's grid today, None if there is no such experiment here."""
    file = Path(conf_dir(), "experiment", f"{experiment}.yaml")
    return yaml.safe_load(file.read_text())["experiment"]["grid"] if file.is_file() else None


if __name__ == "__main__":
    main()
