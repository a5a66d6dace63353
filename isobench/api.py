"""Functions for Python programs and notebooks: carry out a run, and load finished runs into tables.

``import isobench`` gives them as ``isobench.run``, ``isobench.load_runs``, ``isobench.load_epochs`` and
``isobench.report_table``.
"""

import time
from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from isobench.common.errors import UserError
from isobench.common.packages import conf_dir
from isobench.config.command_line import MULTIRUN_FLAGS, check_typed_settings
from isobench.config.explain import explain_config_error
from isobench.config.schema import Config, register_schema, to_config
from isobench.data.own_task import complete_config
from isobench.dataframes import load_epochs, load_runs, report_table
from isobench.papers.folders import take_paper_flags
from isobench.runs.record import RunRecord
from isobench.sweep.planning import convert_to_overrides, keep_global_hydra, keep_plan, make_plan, plan_alone
from isobench.training.execute import train_if_needed

__all__ = ["load_epochs", "load_runs", "report_table", "run"]


def run(overrides: Sequence[str] = ()) -> RunRecord:
    """Carry out one run, unless it is finished, and return its record.

    The result is kept in ``output_dir`` as that of a command is: the same run is never carried out twice.

    Args:
        overrides: settings as on the command line, such as ``["calibration=isobn_paper", "seed=2"]``; also
            ``["--config-dir", FOLDER]`` for YAML of your own, and ``["--paper", FOLDER]`` for a paper.

    Returns:
        The record. Its ``status`` is ``failed`` if the run failed, and ``failure`` then says why.

    Raises:
        UserError: a setting, file or package is wrong or missing, or another process is carrying out the run. Nothing
            is recorded then.
    """
    _check_overrides(overrides)
    cfg = _compose_run(take_paper_flags(overrides))
    if cfg.dry_run or cfg.analysis:
        raise UserError(
            "isobench.run carries out one run, no dry_run and no analysis: use the command line for these"
        )
    if cfg.experiment.grid:
        raise UserError(
            "isobench.run carries out one run, and an experiment's grid has several: use the command line"
        )
    plan = make_plan([plan_alone(cfg)], overrides, is_sweep=False)
    with keep_plan(cfg.output_dir, plan):
        ended, _ = train_if_needed(cfg, time.time())
    if ended.record is None:
        raise UserError(f"another process is carrying out this run: {ended.folder.path}")
    return ended.record


def _check_overrides(overrides: Sequence[str]) -> None:
    """Raise UserError unless the overrides are a list of settings, each given once, without a sweep's flag."""
    if isinstance(overrides, str):
        raise UserError(f"overrides must be a list of settings: isobench.run({overrides.split()})")
    if not isinstance(overrides, list | tuple) or not all(isinstance(text, str) for text in overrides):
        raise UserError("overrides must be a list of texts, each a setting: isobench.run(['seed=2'])")
    if flags := set(overrides).intersection(MULTIRUN_FLAGS):
        raise UserError(f"isobench.run carries out one run, so leave out {min(flags)}, or call it for each run")
    check_typed_settings(overrides)


def _compose_run(overrides: Sequence[str]) -> Config:
    """Compose the config of one run, its task completed from the user's own files if it reads any."""
    register_schema()
    try:
        with keep_global_hydra(), initialize_config_dir(conf_dir(), version_base="1.3"):
            return complete_config(to_config(compose("config", convert_to_overrides(overrides))))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain_config_error(error)) from error
