"""Write an experiment's ended runs into a folder as a bundle, which can be published, checked and merged.

The bundle has records, predictions, the plan, the rows of the experiment's analysis, and the sha256 of every file; no
weights and no checkpoints. Give it the sweep's own arguments, which isobench report lists; +experiment=NAME alone
takes every run of this experiment that was asked for in the output folder. A bundle of this experiment in FOLDER is
replaced. isobench report FOLDER shows a bundle.

Example: isobench export --to bundle +experiment=glue_isobn
"""

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from isobench.analyses.rows import needs_training, read_about
from isobench.analyses.runner import choose_analysed_runs, list_analysis_inputs
from isobench.bundles.manifest import PLAN_FILE, Manifest
from isobench.bundles.transfer import export_bundle
from isobench.cli.command import CommandParser, run_guarded
from isobench.common.environment import collect_garbage_rarely, format_paper_flags
from isobench.common.errors import UserError
from isobench.common.files import replace_non_finite
from isobench.common.packages import conf_dir, experiments_dir
from isobench.common.terminal import format_count, name_some
from isobench.config.schema import Config
from isobench.papers.folders import read_config_file
from isobench.runs.bundled import read_member
from isobench.runs.folder import PREDICTIONS_FILE, report_folder
from isobench.runs.identity import to_plain
from isobench.runs.plan import Plan, parse_plan, read_plans
from isobench.runs.run import Run, check_predictions
from isobench.sweep.find_runs import are_general, drop_selection, find_runs, take_own_experiment
from isobench.sweep.planning import convert_to_overrides


def main() -> None:
    parser = CommandParser("isobench export", __doc__, "[+experiment=NAME] [SETTING=VALUE ...]", page="bundles")
    parser.add_argument("--to", metavar="FOLDER", type=Path, required=True, help="the bundle's folder")
    text = "leave out what names machines, users and folders; records get new checksums"
    parser.add_argument("--anonymous", action="store_true", help=text)
    text = "of these results, as SPDX names it, such as CC-BY-4.0"
    parser.add_argument("--license", metavar="NAME", type=read_licence, help=text)
    options, arguments = parser.parse_sweep_arguments()
    run_guarded(lambda: export(arguments, options.to, options.anonymous, options.license))


def read_licence(text: str) -> str:
    """Read the value of ``--license``; raise argparse's error unless it can be a name of SPDX's list."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}", text):
        return text
    raise argparse.ArgumentTypeError(f"{text} must be a name of spdx.org/licenses, such as CC-BY-4.0")


@collect_garbage_rarely()
def export(arguments: Sequence[str], target: Path, anonymous: bool = False, licence: str | None = None) -> None:
    """Write a bundle of an experiment's ended runs and print what is in it."""
    overrides = convert_to_overrides(arguments)
    is_general = are_general(drop_selection(overrides))
    if is_general and not any(text.startswith("+experiment=") for text in overrides):
        raise UserError(
            "name what to export: +experiment=NAME, or the settings of a sweep, which isobench report lists"
        )
    _, runs = find_runs(drop_selection(arguments))
    runs = take_own_experiment(runs, arguments)
    cfg, experiment = runs[0].cfg, runs[0].cfg.experiment
    trains = not cfg.analysis or needs_training(cfg.analysis)
    ended = _select_ended(runs) if trains else []
    planned = [(run.cfg, run.identity) for run in runs]
    plan = Plan(experiment.name, _list_commands(cfg.output_dir, experiment.name, arguments, is_general), planned)
    manifest = export_bundle(target, plan, ended, _find_analysis(runs, trains), anonymous, licence)
    _print_summary(target, manifest, len(planned) if trains else 0)
    if anonymous:
        kept = _list_names(parse_plan(read_member(target, PLAN_FILE)))
        print(f"Its settings keep these texts of yours: {', '.join(kept) or 'none'}")
    else:
        print("Its records name this machine and its folders; --anonymous leaves them out")


def _list_names(plan: Plan) -> list[str]:
    """List the texts in a bundle's settings that are in no config which isobench brings, each once."""
    folders = [Path(conf_dir()), *Path(experiments_dir()).iterdir()]
    files = [file for folder in folders for file in folder.glob("*/*.yaml")]
    known = {file.stem for file in files}
    known |= set(_iterate_texts([to_plain(Config()), *(read_config_file(file) for file in files)]))
    sections = {id(section): section for cfg, _ in plan.runs for section in vars(cfg).values()}  # which runs share
    kept = _iterate_texts([to_plain(section) for section in sections.values()])
    return list(dict.fromkeys(text for text in kept if text and text not in known))


def _iterate_texts(value: Any) -> Iterator[str]:
    """Yield every text in nested lists and mappings, the mappings' names too."""
    if isinstance(value, Mapping):
        yield from _iterate_texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _iterate_texts(item)
    elif isinstance(value, str):
        yield value


def _select_ended(runs: list[Run]) -> list[Run]:
    """Return the runs that have ended; UserError if there is none, or one is damaged or lacks predictions."""
    check_predictions(runs)
    if troubles := [run.trouble for run in runs if run.trouble]:
        raise UserError(f"damaged runs are not exported: {name_some(troubles, '; ')}")
    ended = [run for run in runs if run.record is not None]
    if not ended:
        raise UserError(f"no run of this sweep has ended in {runs[0].cfg.output_dir}: run it first")
    of_epochs = [run.folder for run in ended if run.record and run.record.best]
    lacking = [folder for folder in of_epochs if not folder.predictions_file.exists()]
    if lacking and len(lacking) < len(of_epochs):
        raise UserError(
            f"{name_some([str(folder.path) for folder in lacking])} has no {PREDICTIONS_FILE}, and other runs have "
            "theirs: remove its result.json and run it again"
        )
    return ended


def _find_analysis(runs: list[Run], trains: bool) -> Path | None:
    """Return the folder of the runs' analysis; None, with a line that says why, if trained runs have none.

    An experiment that trains nothing must have it, made with the settings that it has now.
    """
    cfg = runs[0].cfg
    if not cfg.analysis:
        return None
    folder = report_folder(cfg.output_dir, cfg.experiment.name)
    about = read_about(folder)
    chosen = choose_analysed_runs(runs) if trains else runs
    expected = replace_non_finite(list_analysis_inputs(chosen)) if chosen else {}
    expected["ended"] = [run.folder.key for run in chosen if run.record is not None]
    if about is not None and chosen and all(about.get(name) == value for name, value in expected.items()):
        return folder
    command = shlex.join([*("isobench report" if trains else "python -m isobench").split(), *format_paper_flags()])
    reason = f"{folder} has no analysis of these runs: {command} +experiment={cfg.experiment.name} makes it"
    if not trains:
        raise UserError(reason)
    print(f"Without the analysis: {reason}")
    return None


def _list_commands(output_dir: str, experiment: str | None, arguments: Sequence[str], is_general: bool) -> list[str]:
    """List the commands that made the runs, each once: the plans', if the arguments only name the experiment."""
    plans = read_plans(output_dir, experiment) if is_general else []
    lines = [command for plan in plans for command in plan.commands]
    lines = lines or [shlex.join(["python", "-m", "isobench", "-m", *drop_selection(arguments)])]
    return list(dict.fromkeys(lines))


def _print_summary(target: Path, manifest: Manifest, planned: int) -> None:
    size = sum((target / path).stat().st_size for path in manifest.files)
    if len(manifest.runs) < planned:
        print(f"Exported {len(manifest.runs)} of {planned} runs; the others have not ended: export again later")
    elif manifest.runs:
        print(f"Exported all {format_count(planned, 'run')}")
    print(f"Bundle: {target}, {len(manifest.files) + 1} files, {size / 2**20:.1f} MiB")
    print(f"Check it: isobench verify {shlex.join([*format_paper_flags(), str(target)])}")
