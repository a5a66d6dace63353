"""python -m isobench: Hydra's entry. Light: torch and friends are imported once a config is valid."""

import importlib
import itertools
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from isobench.cli.guard import run_guarded
from isobench.common import environment
from isobench.common.errors import UserError
from isobench.common.resources import conf_dir
from isobench.config.explain import print_error
from isobench.config.schema import Config, register_schema, to_config
from isobench.report.sweep_table import print_table
from isobench.sweep import joblib_pool
from isobench.sweep.grid import expand_chains
from isobench.sweep.sweeper import print_run_plan
from isobench.training.execute import execute_run

COMMANDS = ("status", "report", "dashboard", "prune")  # modules of isobench/cli, which the command takes as words


def main() -> None:
    """Run isobench, or the command that the first word names (``isobench status +experiment=NAME``).

    Exit codes: 0 done, 1 a run failed, 2 something for the user to mend, 3 run elsewhere.
    """
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        command = importlib.import_module(f"isobench.cli.{sys.argv.pop(1)}")
        command.main()
        return
    register_schema()
    run_guarded(run_command_line)


def run_command_line() -> None:
    """Hand the arguments to Hydra, in an order and a form that it takes."""
    sys.argv[1:] = move_flags_first(expand_chains(sys.argv[1:]))
    hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")(run_job)()


def move_flags_first(arguments: list[str]) -> list[str]:
    """Hydra's flags, and their values, before the settings: argparse refuses settings on both sides of a flag."""
    with_value = ("--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp", "--package", "-p")
    flags: list[str] = []
    settings: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        (flags if argument.startswith("-") else settings).append(argument)
        if argument in with_value:
            flags.extend(itertools.islice(rest, 1))
        if argument in ("--cfg", "-c", "--info", "-i", "--shell-completion", "-sc"):
            return arguments  # their values are optional, or are settings to them
    return flags + settings


def run_job(config: DictConfig) -> int:
    """One run, alone or in a sweep; returns its exit code, and in a run alone exits with it."""
    hydra_config = HydraConfig.get()
    try:
        if hydra_config.mode == RunMode.RUN:
            return run_alone(to_config(config))
        position = f"[{hydra_config.job.num + 1}/{environment.read_run_count() or '?'}] "
        return joblib_pool.run_unless_stopped(lambda: execute_run(to_config(config), position)[0])
    except Exception as error:  # said here: Hydra would print more than the one line
        if environment.is_debugging():
            raise
        print_error(error)
        raise SystemExit(2) from None


def run_alone(cfg: Config) -> int:
    """A run that is no sweep: its line, its table, its folder."""
    if cfg.analysis:
        raise UserError("an analysis is of an experiment's grid: add hydra.mode=MULTIRUN to its YAML")
    if cfg.dry_run:
        print_run_plan(cfg)
        return 0
    code, row = execute_run(cfg)
    if row is not None:
        print_table(cfg.experiment, [row])
        print(f"This run: {row.folder.path}")
    if code:
        raise SystemExit(code)
    return code


if __name__ == "__main__":
    main()
