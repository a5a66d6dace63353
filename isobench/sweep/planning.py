"""Plan a sweep: compose, check and key every run before anything is started."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from isobench.common.environment import collect_garbage_rarely, format_paper_flags
from isobench.common.errors import NoGridError, UserError, doing, refuse
from isobench.common.files import explain_output_errors
from isobench.common.terminal import print_note_once
from isobench.config.bounds import Seed, check_value
from isobench.config.command_line import (
    Override,
    check_typed_settings,
    drop_launch_arguments,
    quote_for_hydra,
    split_config_dirs,
)
from isobench.config.composing import compose_overrides, find_experiment_name
from isobench.config.schema import Config, format_method_name
from isobench.runs.folder import jobs_folder, remove_empty_output_folder, runs_folder
from isobench.runs.grouping import label_runs, read_setting
from isobench.runs.identity import Identifier
from isobench.runs.plan import Plan, locate_plan, write_plan
from isobench.runs.run import Run
from isobench.runs.validate import validate_config
from isobench.sweep.compose import Composer
from isobench.sweep.grid import (
    expand_chains,
    expand_grid,
    fit_to_methods,
    postpone_method_settings,
    rewrite_overrides,
)

SWEEP_SETTINGS = ("experiment", "scale", "dry_run", "retry_failed", "report")  # read once for the whole sweep


@collect_garbage_rarely()
def plan_runs(loader: ConfigLoader, base: DictConfig, arguments: Sequence[str]) -> list[Run]:
    """Plan the runs of a sweep, in the grid's order; runs with the same key appear once.

    ``base`` is the sweep's own config, with the experiment's grid; ``arguments`` are what Hydra hands to a sweeper.
    """
    identifier = Identifier()
    planned: dict[str, Run] = {}
    for cfg, overrides, left_out in compose_runs(loader, base, arguments):
        check_value("seed", cfg.seed, Seed)
        identity = identifier.identify(cfg)
        run = Run.of(cfg, identity.key, identity)
        run.overrides, run.left_out = overrides, left_out
        first = planned.setdefault(identity.key, run)
        if first.cfg != cfg:
            values = [f"{a} and {b}" for a, b in zip(first.overrides, overrides, strict=False) if a != b]
            reason = "this setting changes no result"
            raise UserError(f"{', '.join(values)} give the same run, because {reason}: choose one value")
    runs = list(planned.values())
    label_runs(runs, keep_labels=True)
    return runs


def compose_runs(
    loader: ConfigLoader, base: DictConfig, arguments: Sequence[str]
) -> Iterator[tuple[Config, list[Override], list[str]]]:
    """Compose and check the config of each run of a sweep, in the grid's order; the arguments are `plan_runs`'.

    Yields the config, the overrides that give it, and the sweep's settings that its method lacks.
    """
    command_line = _parse_sweep_overrides(loader, arguments)
    if base.experiment.name is None and (name := find_experiment_name(base)):
        command_line["experiment.name"] = [Override("experiment.name", name)]
    grid, composer = read_grid(base), Composer(loader, base)
    # The composer gives configs equal parts as one object, so configs that differ in their seed are checked once.
    valid: dict[tuple[int, ...], Config] = {}  # ids of the parts -> the checked config, which keeps the ids alive
    expanded = [expand_chains(run) for run in expand_grid(grid, command_line)]
    for overrides, left_out in fit_to_methods(composer, expanded):
        cfg = composer.compose(overrides)
        section_ids = tuple(id(part) for name, part in vars(cfg).items() if name != "seed")
        if section_ids not in valid:
            validate_config(cfg)
            valid[section_ids] = cfg
        yield cfg, overrides, left_out


def compose_methods(arguments: Sequence[str]) -> tuple[Config, dict[str, dict[str, Any]]]:
    """Compose the settings of a diagnosis, which trains nothing: a config with its encoder, and methods by name.

    The encoder's pooling is mean unless the arguments set it.
    """
    arguments = list(arguments)  # which are read more than once
    check_typed_settings(arguments)
    is_typed = any(Override.parse(text).name == "encoder.pooling" for text in arguments)
    # Settings that only training reads are refused, as for an analysis that trains nothing.
    added = [*([] if is_typed else ["encoder.pooling=mean"]), "+analysis.trains=false"]
    with compose_sweep([*arguments, *added]) as composed:
        runs = list(compose_runs(*composed))
    cfg = runs[0][0]
    are_several = any(other.encoder != cfg.encoder for other, _, _ in runs)
    refuse((are_several, "a diagnosis has one encoder, layer and pooling: give each a command of its own"))
    methods: dict[str, dict[str, Any]] = {}
    names = [format_method_name(other.calibration) for other, _, _ in runs]
    for name, (other, overrides, _) in zip(names, runs, strict=True):
        if names.count(name) > 1:  # tried with several settings, which tell one from another
            settings = [f"{'.'.join(one.path[1:])}={one.value}" for one in overrides if one.is_of_method]
            name = " ".join([name, *settings])
        if name != "none":
            methods[name] = other.calibration
    return cfg, methods


def read_grid(base: DictConfig) -> list[dict[str, Any]]:
    """Read the sub-grids of an experiment at the sweep's scale; none without a grid."""
    grids = cast(dict[str, list[dict[str, Any]]], OmegaConf.to_container(base.experiment.grid, resolve=True))
    if not grids:
        return []
    if base.scale not in grids:
        scales = ", ".join(f"scale={name}" for name in grids)
        raise NoGridError(f"{base.experiment.name} has no grid for scale={base.scale}; it has one for {scales}")
    grid = grids[base.scale]
    fixed = [key for sub_grid in grid for key in sub_grid if _holds_for_whole_sweep(key.lstrip("+"))]
    refuse(
        (not grid, f"experiment.grid.{base.scale} is empty: list its sub-grids, such as - calibration: [A, B]"),
        (fixed, f"experiment.grid: {', '.join(fixed)} holds for the whole sweep, not for single runs"),
    )
    return grid


def find_places(order: list[str], runs: Sequence[Run]) -> dict[str, list[int]]:
    """Return what a sweep's runs are sorted by: a run's key -> a rank for each setting of ``order``.

    ``order`` has dotted settings, the outermost first, or ``encoder`` and ``task`` for all settings of these. A
    value's rank is its place in the grid, so that runs with the same value come together.
    """
    places: dict[str, list[int]] = {run.folder.key: [] for run in runs}
    for name in order:
        texts = [str(read_setting(run.cfg, name)) for run in runs]
        if set(texts) == {"-"}:  # misspelt, or that of a method which was left out
            print_note_once(f"experiment.order: no run has the setting {name}")
        ranks = {text: rank for rank, text in enumerate(dict.fromkeys(texts))}
        for run, text in zip(runs, texts, strict=True):
            places[run.folder.key].append(ranks[text])
    return places


@contextmanager
def keep_plan(output_dir: str, plan: Plan) -> Iterator[Path]:
    """A context that starts the runs of a plan: its file is written, and removed if it is new and no run began."""
    file = locate_plan(output_dir, plan)
    is_new = not file.exists()
    with explain_output_errors(Path(output_dir)):
        write_plan(output_dir, plan)
    try:
        yield file
    finally:
        if is_new and not any([*runs_folder(output_dir).glob("*"), *jobs_folder(output_dir).glob("*")]):
            file.unlink(missing_ok=True)
            with suppress(OSError):
                file.parent.rmdir()
                remove_empty_output_folder(output_dir)


def make_plan(runs: Sequence[Run], arguments: Sequence[str]) -> Plan:
    """Make the plan of a sweep, in the order in which its runs are carried out (``experiment.order``)."""
    places = find_places(runs[0].cfg.experiment.order, runs)
    planned = [(run.cfg, run.identity) for run in sorted(runs, key=lambda run: places[run.folder.key])]
    command = shlex.join(["python", "-m", "isobench", *format_paper_flags(), *drop_launch_arguments(list(arguments))])
    return Plan(runs[0].cfg.experiment.name, [command], planned)


def _holds_for_whole_sweep(name: str) -> bool:
    return name in (*SWEEP_SETTINGS, "output_dir") or name.startswith(("experiment.", "hydra.", "hydra/"))


def _parse_sweep_overrides(loader: ConfigLoader, arguments: Sequence[str]) -> dict[str, list[Override]]:
    """Parse the command line's overrides: each setting with its overrides, one for each value."""
    overrides_by_setting: dict[str, list[Override]] = {}
    for override in OverridesParser.create(config_loader=loader).parse_overrides(list(arguments)):
        key = override.get_key_element()
        name = key.lstrip("+")
        is_fixed = name.startswith("analysis.") or _holds_for_whole_sweep(name)
        if override.is_sweep_override():  # Hydra keeps even choice(true) out of the sweep's own config
            refuse((is_fixed, f"{name} can't be swept over: give each value a command of its own"))
            with doing(str(override.input_line)):
                values = list(override.sweep_string_iterator())
        else:
            values = [override.get_value_element_as_str()]
        refuse((not values, f"{override.input_line} has no values"))
        overrides_by_setting[key] = [Override(key, value) for value in values]
    return overrides_by_setting


@contextmanager
def compose_sweep(arguments: Sequence[str]) -> Iterator[tuple[ConfigLoader, DictConfig, list[str]]]:
    """Let Hydra compose a sweep's command line without running it; yield the arguments of `plan_runs`."""
    with compose_overrides(convert_to_overrides(arguments)) as (loader, base):
        yield loader, base, list(base.hydra.overrides.task)


def convert_to_overrides(arguments: Sequence[str]) -> list[str]:
    """Convert a command's arguments to Hydra overrides: drop ``-m``, turn ``--config-dir`` into a search path."""
    folders, settings = split_config_dirs(arguments)
    paths = ",".join(quote_for_hydra(f"file://{folder}") for folder in folders)
    search_path = [f"hydra.searchpath=[{paths}]"] if paths else []
    overrides = rewrite_overrides([Override.parse(text) for text in (*search_path, *settings)])
    return list(map(str, postpone_method_settings(overrides)))
