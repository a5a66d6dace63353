"""What a sweep consists of: every run composed, checked and keyed, before anything is started."""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from isobench.common.errors import UserError
from isobench.common.resources import conf_dir
from isobench.config.explain import explain_config_error
from isobench.config.schema import register_schema
from isobench.runs.identity import identify
from isobench.runs.row import Row
from isobench.runs.validate import validate_config
from isobench.sweep.compose import Composer
from isobench.sweep.grid import expand_chains, expand_grid
from isobench.sweep.saved_commands import MULTIRUN_FLAGS, SweepCommand


@dataclass
class PlannedRun:
    """One run of a sweep: its table row and the overrides that give its config."""

    row: Row
    overrides: list[str]


def plan_runs(loader: ConfigLoader, base: DictConfig, arguments: Sequence[str]) -> dict[str, PlannedRun]:
    """Key -> run, in the grid's order; runs that are equal appear once.

    Args:
        loader: Hydra's.
        base: the sweep's own config, with the experiment's grid.
        arguments: what the command line sweeps over or sets, as Hydra hands it to a sweeper.

    Raises:
        UserError: a value that can't work, or data that are not there.
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: a setting that is not there.
    """
    given = parse_sweep_overrides(loader, arguments)
    if len(given.get("output_dir", [])) > 1:
        raise UserError("output_dir can't be swept over: one output folder holds any number of runs")
    for key, values in given.items():
        if key.lstrip("+").startswith("analysis.") and len(values) > 1:
            raise UserError(f"{key} can't be swept over: give each value a command (and an output_dir) of its own")
    grids = cast(dict[str, list[dict[str, Any]]], OmegaConf.to_container(base.experiment.grid, resolve=True))
    if grids and base.scale not in grids:
        has = ", ".join(f"scale={name}" for name in grids)
        raise UserError(f"{base.experiment.name} has no grid for scale={base.scale}; it has one for {has}")
    composer = Composer(loader, base)
    planned: dict[str, PlannedRun] = {}
    runs = expand_grid(grids.get(base.scale, []), given)
    if not runs:
        wanted = " ".join(value for values in given.values() for value in values)
        raise UserError(f"{base.experiment.name} has no sub-grid with this combination: {wanted}")
    for expanded in runs:
        overrides = expand_chains(expanded)
        cfg = composer.compose(overrides)
        validate_config(cfg)
        identity = identify(cfg)
        if identity.key not in planned:
            planned[identity.key] = PlannedRun(Row.of(cfg, identity.key), overrides)
    return planned


def parse_sweep_overrides(loader: ConfigLoader, arguments: Sequence[str]) -> dict[str, list[str]]:
    """Setting -> its overrides ``key=value``, one for each value swept over."""
    found: dict[str, list[str]] = {}
    for override in OverridesParser.create(config_loader=loader).parse_overrides(list(arguments)):
        key = override.get_key_element()
        if not override.is_sweep_override():
            values = [override.get_value_element_as_str()]
        elif override.is_discrete_sweep():
            values = list(override.sweep_string_iterator())
        else:
            raise UserError(f"{override.input_line}: only lists, choice(), range() and glob() can be swept")
        found[key] = [f"{key}={value}" for value in values]
    return found


@contextmanager
def compose_sweep(arguments: Sequence[str]) -> Iterator[tuple[ConfigLoader, DictConfig, list[str]]]:
    """What Hydra makes of a sweep's command line, without running it: loader, base config, arguments."""
    register_schema()
    GlobalHydra.instance().clear()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        base = hydra.compose_config("config", convert_to_overrides(arguments), run_mode=RunMode.MULTIRUN)
        yield hydra.config_loader, base, list(base.hydra.overrides.task)


def plan_saved_command(command: SweepCommand, output_dir: str) -> dict[str, PlannedRun]:
    """What a remembered sweep consists of today.

    Raises:
        UserError: its folder, its data or a setting are not there any more.
    """
    place = f"output_dir={quote_for_hydra(str(Path(output_dir).absolute()))}"
    try:
        with contextlib.chdir(command.folder), compose_sweep([*command.arguments, place]) as parts:
            return plan_runs(*parts)
    except (UserError, OSError, HydraException, OmegaConfBaseException) as error:
        said = (
            f"{' '.join(command.arguments)}: {error if isinstance(error, UserError) else explain_config_error(error)}"
        )
        raise UserError(f"a sweep can't be planned any more: {said}") from error


def convert_to_overrides(arguments: Sequence[str]) -> list[str]:
    """A command's arguments as overrides: without ``-m``, and ``--config-dir`` as the search path it means."""
    found, folder = [], False
    for argument in arguments:
        name, _, value = argument.partition("=")
        if folder or (name in ("--config-dir", "-cd") and value):
            found.append(f"hydra.searchpath=[{quote_for_hydra('file://' + (argument if folder else value))}]")
            folder = False
        elif argument in ("--config-dir", "-cd"):
            folder = True
        elif argument not in MULTIRUN_FLAGS:
            found.append(argument)
    return expand_chains(found)


def quote_for_hydra(text: str) -> str:
    """A value as Hydra's grammar takes any text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
