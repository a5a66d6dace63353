"""Find the runs that the arguments of status, report, export or dashboard mean."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException

from isobench.common.environment import collect_garbage_rarely
from isobench.common.errors import UserError
from isobench.common.terminal import format_count, print_note
from isobench.config.bounds import check_value
from isobench.config.command_line import (
    SEARCH_PATH,
    Override,
    check_typed_settings,
    drop_launch_arguments,
    expand_home_folders,
    split_config_dirs,
)
from isobench.config.composing import find_experiment_name, read_sweep_config
from isobench.config.schema import Config, Experiment, Selection, to_config
from isobench.papers.folders import find_papers
from isobench.runs.folder import ABOUT_FILE, reports_folder
from isobench.runs.plan import list_run_folders, read_runs
from isobench.runs.run import Run
from isobench.sweep.planning import compose_sweep, plan_runs

SELECTION_PREFIX = "experiment.selection."
EXPERIMENT, OUTPUT_DIR = "+experiment=", "output_dir="
GENERAL_SETTINGS = (EXPERIMENT, OUTPUT_DIR, "data.", SEARCH_PATH)  # they don't say which of an experiment's runs


@collect_garbage_rarely()
def find_runs(arguments: Sequence[str]) -> tuple[str, list[Run]]:
    """Find the runs of a sweep, or of an output folder: return a title and the runs.

    Arguments that at most name an experiment, output folder, folder of configs, data and launcher mean the runs of
    the folder's plans (without an experiment, every run there); these are read, and nothing is composed. Other
    arguments mean the runs that a sweep with them has, and so does an experiment that nothing was started of.

    Raises:
        UserError: there are no such runs, or the arguments are wrong.
    """
    check_typed_settings(arguments)
    is_general = are_general(arguments)
    location = read_place(arguments) if is_general else None
    if location is not None and (runs := read_runs(*location)):
        return _make_title(*location), runs
    with compose_sweep(arguments) as (loader, base, overrides):  # its YAML may name another output folder
        composed = base.output_dir, find_experiment_name(base)
        if is_general and composed != location and (runs := read_runs(*composed)):
            return _make_title(*composed), runs
        output_dir, name = composed
        if is_general and name is None:
            reason = "can be shown" if list_run_folders(output_dir) else "was carried out yet; name a sweep"
            raise UserError(f"none of the runs in {output_dir} {reason}, such as +experiment=glue_isobn")
        return name or "runs", plan_runs(loader, base, overrides)


def are_general(arguments: Sequence[str]) -> bool:
    """Return True if arguments name at most an experiment, output folder, data and launcher, not which runs."""
    _, settings = split_config_dirs(arguments)
    return all(text.startswith(GENERAL_SETTINGS) for text in drop_launch_arguments(settings))


def read_place(arguments: Sequence[str]) -> tuple[str, str | None] | None:
    """Read the output folder and the experiment's name from arguments that are `are_general`.

    None if that takes composing them.
    """
    typed: dict[str, str | None] = {OUTPUT_DIR: Config.output_dir, EXPERIMENT: None}
    for text in arguments:
        prefix = text.partition("=")[0] + "="
        if prefix in typed:
            try:
                expanded = expand_home_folders(Override.parse(text))
                value = OverridesParser.create().parse_override(str(expanded)).value()
            except HydraException:
                return None
            if not isinstance(value, str) or not value or "${" in value:
                return None
            typed[prefix] = value
    return str(typed[OUTPUT_DIR]), typed[EXPERIMENT]


def count_runs(output_dir: str) -> dict[str, str]:
    """Say of each experiment in an output folder how many of its runs have ended, or that it has an analysis."""
    runs = read_runs(output_dir)
    counts = Counter(run.cfg.experiment.name for run in runs)
    ended = Counter(run.cfg.experiment.name for run in runs if run.record is not None)
    found = {name: f"{ended[name]:,} of {format_count(count, 'run')} ended" for name, count in counts.items() if name}
    analyses = sorted(file.parent.name for file in reports_folder(output_dir).glob(f"*/{ABOUT_FILE}"))
    return {name: "an analysis" for name in analyses if not name.startswith("bundle")} | found


def _make_title(output_dir: str, experiment: str | None) -> str:
    return experiment or f"runs in {output_dir}"


def read_selection(arguments: Sequence[str]) -> Selection:
    with compose_sweep(arguments) as (_, base, _):
        selection = to_config(base).experiment.selection
    check_value("experiment.selection", selection, Selection)
    return selection


def take_own_experiment(runs: Sequence[Run], arguments: Sequence[str]) -> list[Run]:
    """Return the runs with experiment and analysis as the command line's configs have them, not as they were stored.

    If they lack the experiment, the runs keep the stored one, but not its analysis.
    A report imports the function that ``analysis`` names, and somebody else may have written what is stored.
    """
    names = [text for text in arguments if text.startswith(EXPERIMENT)]
    try:
        with compose_sweep(arguments) as (_, base, _):
            composed = read_sweep_config(base)
        experiment = composed.experiment
    except MissingConfigException as error:
        if not names or error.missing_cfg_file != f"experiment/{names[0].removeprefix(EXPERIMENT)}":
            raise
        if runs[0].cfg.experiment.paper in (None, *find_papers()):  # else the report says that its paper is not here
            print_note(f"there is no {error.missing_cfg_file}.yaml here, so no analysis: add --config-dir=FOLDER")
        with compose_sweep([text for text in arguments if text not in names]) as (_, base, _):
            composed = read_sweep_config(base)
        experiment = runs[0].cfg.experiment
        if any(text.startswith(SELECTION_PREFIX) for text in arguments):
            experiment = replace(experiment, selection=composed.experiment.selection)
    check_value("experiment", experiment, Experiment)
    return [replace(run, cfg=replace(run.cfg, experiment=experiment, analysis=composed.analysis)) for run in runs]


def drop_selection(arguments: Sequence[str]) -> list[str]:
    """Drop the arguments that change the selection rule only, and so do not say which runs are meant."""
    return [argument for argument in arguments if not argument.startswith(SELECTION_PREFIX)]
