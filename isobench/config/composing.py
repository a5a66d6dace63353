"""Let Hydra compose a config of overrides without running anything."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from isobench.common.errors import UserError
from isobench.common.packages import conf_dir
from isobench.config.bounds import check_value, read_hints
from isobench.config.explain import explain_error
from isobench.config.schema import Config, register_schema, to_config
from isobench.papers.folders import list_configs


@contextmanager
def compose_overrides(overrides: Sequence[str]) -> Iterator[tuple[ConfigLoader, DictConfig]]:
    """Compose overrides as those of a sweep; yield what loads configs, and the sweep's own config."""
    register_schema()
    GlobalHydra.instance().clear()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        base = hydra.compose_config("config", list(overrides), run_mode=RunMode.MULTIRUN)
        check_value("output_dir", base.output_dir, read_hints(Config)["output_dir"])
        yield hydra.config_loader, base


def find_experiment_name(base: DictConfig) -> str | None:
    """Find the name of a sweep's experiment: the one in its YAML, else the file's; None without an experiment."""
    return base.experiment.name or base.hydra.runtime.choices.get("experiment")


def read_sweep_config(base: DictConfig) -> Config:
    """Return the typed config of a sweep's own one, its experiment named; values of its grid are not set in it."""
    composed = to_config(base)
    return replace(composed, experiment=replace(composed.experiment, name=find_experiment_name(base)))


@contextmanager
def keep_global_hydra() -> Iterator[None]:
    """Let Hydra compose inside a program that uses Hydra itself, whose own state is put back; explain its errors."""
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain_error(error)) from error
    finally:
        GlobalHydra.instance().hydra = before  # the instance may be another one by now


def compose_experiment(name: str | None) -> Config | None:
    """Compose the config of an experiment of isobench's or of a paper; None if there is none of this name."""
    if name not in list_configs("experiment"):
        return None
    with keep_global_hydra(), compose_overrides([f"+experiment={name}"]) as (_, base):
        return read_sweep_config(base)
