"""python -m isobench.prune: list, and after asking remove, runs that no command or experiment produces any more."""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from isobench import heartbeat
from isobench.__main__ import run_guarded
from isobench.errors import UserError
from isobench.resources import conf_dir
from isobench.run import RunFolder
from isobench.sweep.commands import recall
from isobench.sweep.jobs import queue
from isobench.sweep.plan import composed, plan


def main() -> None:
    """The command line; exit codes as for ``python -m isobench``."""
    parser = argparse.ArgumentParser(
        prog="python -m isobench.prune",
        description="Lists the runs whose key neither an experiment (with any seed that was run) nor a command given "
        "in this output folder produces any more: their settings, data, weights or code have changed since. "
        "Asks, then removes them.",
        allow_abbrev=False,
    )
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    parser.add_argument("settings", nargs="*", metavar="output_dir=FOLDER", help="and other settings, e.g. data.root")
    options = parser.parse_args()
    run_guarded(lambda: prune(options.settings, options.yes))


def prune(settings: Sequence[str], yes: bool) -> None:
    """List what is not produced any more; remove it if ``yes``, or if the user says so."""
    with composed(settings) as (_, base, _):
        output_dir = base.output_dir
    found = list(orphans(output_dir, settings))
    for folder, name in found:
        print(f"{folder}  {name}")
    if not found:
        print(f"Every run in {Path(output_dir) / 'runs'} is still produced.")
        return
    size = sum(file.stat().st_size for folder, _ in found for file in folder.rglob("*") if file.is_file())
    print(f"{len(found)} runs that nothing produces any more, {size / 2**20:.1f} MiB.")
    if yes or confirmed():
        for folder, _ in found:
            with RunFolder(output_dir, folder.name).lock() as ours:
                if ours:
                    shutil.rmtree(folder)
        print(f"Removed {sum(not folder.exists() for folder, _ in found)}.")


def confirmed() -> bool:
    """Ask on the terminal; without one, nothing is removed."""
    if not sys.stdin.isatty():
        print("Not removed: --yes removes them.")
        return False
    return input("Remove them? [y/N] ").strip().lower() in ("y", "yes")


def orphans(output_dir: str, settings: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Run folders that nothing produces, with what their config says they are; never one that is at work."""
    folders = sorted(path for path in (Path(output_dir) / "runs").glob("*") if path.is_dir())
    configs = {folder: read_config(folder) for folder in folders}
    seeds = sorted({config["seed"] for config in configs.values() if "seed" in config}) or [1]
    kept = {key[:16] for key in produced(output_dir, settings, seeds)} | set(queue(output_dir))
    for folder, config in configs.items():
        beat = heartbeat.read(folder)
        if folder.name not in kept and not (beat and heartbeat.alive(beat)):
            yield folder, describe(config)


def produced(output_dir: str, settings: Sequence[str], seeds: Sequence[int]) -> Iterator[str]:
    """Keys of everything the remembered commands and the experiments give today.

    Raises:
        UserError: data or weights that are not there, for then nothing can be said of any key.
    """
    place = f"output_dir={output_dir}"
    for command in recall(output_dir):
        try:
            with composed([*command["arguments"], place]) as parts:
                yield from plan(*parts)
        except (HydraException, OmegaConfBaseException):  # a setting that is no more: it produces nothing
            continue
    every_seed = "seed=" + ",".join(map(str, seeds))
    for file in sorted(Path(conf_dir(), "experiment").glob("*.yaml")):
        for scale in ("embedded", "paper"):
            try:
                with composed([f"+experiment={file.stem}", f"scale={scale}", every_seed, place, *settings]) as parts:
                    yield from plan(*parts)
            except UserError:  # data this installation does not have: it has no runs on them either
                continue


def read_config(folder: Path) -> dict:
    """A run's config as it was written; empty if there is none."""
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text())
    except (OSError, yaml.YAMLError):
        return {}
    return config if isinstance(config, dict) else {}


def describe(config: dict) -> str:
    """What a run was, in one line."""
    try:
        parts = (config["task"]["name"], config["encoder"]["name"], config["calibration"]["name"])
        return f"{' '.join(parts)} seed {config['seed']} (experiment {config['experiment']['name'] or 'none'})"
    except (KeyError, TypeError):
        return "a run without a config"


if __name__ == "__main__":
    main()
