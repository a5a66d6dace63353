"""What a sweep consists of: every run composed, checked and keyed, before anything is started."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from isobench.errors import UserError
from isobench.report.table import Row
from isobench.resources import conf_dir
from isobench.run import RunFolder, identify
from isobench.schema import register
from isobench.sweep.commands import FLAGS
from isobench.sweep.compose import Composer
from isobench.sweep.grid import expand
from isobench.validate import validate


@dataclass
class Planned:
    """One run of a sweep: its table row and the overrides that give its config."""

    row: Row
    overrides: list[str]


def plan(loader: ConfigLoader, base: DictConfig, arguments: Sequence[str]) -> dict[str, Planned]:
    """Key -> run, in the grid's order; runs that are equal appear once.

    Args:
        loader: Hydra's.
        base: the sweep's own config, with the experiment's grid.
        arguments: what the command line sweeps over or sets, as Hydra hands it to a sweeper.

    Raises:
        UserError: a value that can't work, or data that are not there.
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: a setting that is not there.
    """
    grids = OmegaConf.to_container(base.experiment.grid, resolve=True)
    composer = Composer(loader, base)
    planned: dict[str, Planned] = {}
    for overrides in expand(grids.get(base.scale, []), command_line(loader, arguments)):  # type: ignore[union-attr]
        cfg = composer.config(overrides)
        validate(cfg)
        identity = identify(cfg)
        if identity.key not in planned:
            folder = RunFolder(cfg.output_dir, identity.key)
            planned[identity.key] = Planned(Row(cfg, folder, folder.result()), overrides)
    return planned


def command_line(loader: ConfigLoader, arguments: Sequence[str]) -> dict[str, list[str]]:
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
def composed(arguments: Sequence[str]) -> Iterator[tuple[ConfigLoader, DictConfig, list[str]]]:
    """What Hydra makes of a sweep's command line, without running it: loader, base config, arguments."""
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        base = hydra.compose_config("config", overrides(arguments), run_mode=RunMode.MULTIRUN)
        yield hydra.config_loader, base, list(base.hydra.overrides.task)


def overrides(arguments: Sequence[str]) -> list[str]:
    """A command's arguments as overrides: without ``-m``, and ``--config-dir`` as the search path it means."""
    found, folder = [], False
    for argument in arguments:
        name, _, value = argument.partition("=")
        if folder or (name in ("--config-dir", "-cd") and value):
            found.append(f"hydra.searchpath=[file://{value if not folder else argument}]")
            folder = False
        elif argument in ("--config-dir", "-cd"):
            folder = True
        elif argument not in FLAGS:
            found.append(argument)
    return found
