"""Run ``isobench prune``: list the runs that nothing produces any more, and remove them on request."""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import yaml

from isobench.cli.guard import run_guarded
from isobench.common.garbage import collect_garbage_rarely
from isobench.common.resources import conf_dir
from isobench.config.command_line import check_typed_settings
from isobench.runs import heartbeat
from isobench.runs.folder import RunFolder
from isobench.runs.identity import Identifier
from isobench.runs.jobs import find_queued_jobs
from isobench.runs.layout import run_folder_name, runs_folder
from isobench.runs.listing import list_run_folders, read_run_config
from isobench.runs.row import format_run_name
from isobench.runs.validate import ConfigValidator
from isobench.sweep.plan import compose_sweep, plan_saved_command
from isobench.sweep.saved_commands import read_commands


def main(prog: str = "python -m isobench.prune") -> None:
    """Parse the command line and run the command; ``prog`` is what the usage line calls it."""
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s [-h] [--yes] [output_dir=FOLDER] [SETTING=VALUE ...]",
        description="Lists the runs that no command produces any more, then asks whether to remove them. Such runs "
        "have settings that give another key now, because data, weights or code have changed; or their experiment "
        "has changed, and no sweep that was started in this output folder asks for them.",
        allow_abbrev=False,
    )
    parser.add_argument("--yes", action="store_true", help="remove them without asking")
    parser.add_argument("settings", nargs="*", metavar="SETTING=VALUE", help="such as output_dir or data.root")
    options = parser.parse_args()
    run_guarded(lambda: prune(options.settings, options.yes))


def prune(settings: Sequence[str], yes: bool) -> None:
    """List the runs that nothing produces any more; remove them if ``yes``, or if the user confirms it.

    Raises:
        UserError: a sweep can't be planned any more, or data or weights are missing.
    """
    check_typed_settings(settings)
    with compose_sweep(settings) as (_, base, _):
        output_dir = base.output_dir
    with collect_garbage_rarely():
        orphans = list(find_orphan_runs(output_dir))
    for folder, reason in orphans:
        print(f"{folder}  {reason}")
    if not orphans:
        print(f"Every run in {runs_folder(output_dir)} is still produced.")
        return
    size = sum(file.stat().st_size for folder, _ in orphans for file in folder.rglob("*") if file.is_file())
    print(f"{len(orphans)} runs that nothing produces any more, {size / 2**20:.1f} MiB.")
    if yes or ask_confirmation():
        for folder, _ in orphans:
            with RunFolder(output_dir, folder.name).lock() as is_locked:
                if is_locked:
                    shutil.rmtree(folder)
        print(f"Removed {sum(not folder.exists() for folder, _ in orphans)}.")


def ask_confirmation() -> bool:
    """Ask the user on the terminal whether to remove the runs; without a terminal the answer is no."""
    if not sys.stdin.isatty():
        print("Not removed: --yes removes them.")
        return False
    return input("Remove them? [y/N] ").strip().lower() in ("y", "yes")


def find_orphan_runs(output_dir: str) -> Iterator[tuple[Path, str]]:
    """Yield the folders of runs that nothing produces any more, each with the reason; running and queued runs never.

    A run is kept if its own config still gives its key and, for a run of an experiment, if the experiment's grid has
    not changed or a sweep that was started in this output folder asks for the run.

    Raises:
        UserError: a sweep can't be planned any more, or data or weights are missing, so that no key can be computed.
    """
    queued = find_queued_jobs(output_dir)
    planned: set[str] | None = None  # names of the folders that the sweeps ask for; computed when first needed
    validator, identifier = ConfigValidator(), Identifier()
    for folder in list_run_folders(output_dir):
        if folder.name in queued or heartbeat.read_live_heartbeat(folder):
            continue
        cfg = read_run_config(folder, validator)
        if cfg is None:
            yield folder, "its config can't be read, or is not valid any more"
            continue
        name = f"{format_run_name(cfg)} (experiment {cfg.experiment.name or 'none'})"
        if run_folder_name(identifier.identify(cfg).key) != folder.name:
            yield folder, f"{name}: its settings have another key now"
        elif cfg.experiment.name and cfg.experiment.grid != read_grid(cfg.experiment.name):
            if planned is None:
                planned = {
                    run_folder_name(key)
                    for command in read_commands(output_dir)
                    for key in plan_saved_command(command, output_dir)
                }
            if folder.name not in planned:
                yield folder, f"{name}: the experiment has changed"


@cache
def read_grid(experiment: str) -> dict | None:
    """Read an experiment's grid from its YAML; None if isobench has no such experiment."""
    file = Path(conf_dir(), "experiment", f"{experiment}.yaml")
    return yaml.safe_load(file.read_text())["experiment"]["grid"] if file.is_file() else None


if __name__ == "__main__":
    main()
