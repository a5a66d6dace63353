"""Expand the experiment's grid, run what isn't finished, end with the table."""

import os
import sys
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from isobench.errors import UserError
from isobench.report.table import Row, print_table
from isobench.run import RunFolder, identify
from isobench.schema import to_config
from isobench.sweep.grid import expand
from isobench.validate import validate

RUNS_VARIABLE = "ISOBENCH_RUNS"  # how many runs this sweep starts, for their progress lines
BUSY = 3  # exit code: another process is at a run


class GridSweeper(Sweeper):
    """Hydra sweeper: every configuration is composed, checked and keyed before anything is launched."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra."""
        self.composer, self.base = hydra_context.config_loader, config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Run the sweep; ends the program with ``exit_code`` if that is not 0."""
        planned = self._plan(arguments)
        todo = [(row, overrides) for row, overrides in planned.values() if row.record is None]
        finished = len(planned) - len(todo)
        print(f"{len(planned)} runs: {finished} finished, {len(todo)} to do", file=sys.stderr)
        codes = self._launch([overrides for _, overrides in todo]) if todo else []
        rows = [row for row, _ in planned.values()]
        for row in rows:
            row.record = row.folder.result()
        print_table(self.base.experiment, rows)
        if code := exit_code(rows, *codes):
            raise SystemExit(code)

    def _plan(self, arguments: list[str]) -> dict[str, tuple[Row, list[str]]]:
        """Key -> table row and overrides, in the grid's order; equal runs once."""
        command_line: dict[str, list[str]] = {}
        for override in OverridesParser.create(config_loader=self.composer).parse_overrides(arguments):
            key = override.get_key_element()
            if not override.is_sweep_override():
                values = [override.get_value_element_as_str()]
            elif override.is_discrete_sweep():
                values = list(override.sweep_string_iterator())
            else:
                raise UserError(f"{override.input_line}: only lists, choice(), range() and glob() can be swept")
            command_line[key] = [f"{key}={value}" for value in values]
        grids = OmegaConf.to_container(self.base.experiment.grid, resolve=True)
        planned: dict[str, tuple[Row, list[str]]] = {}
        for overrides in expand(grids.get(self.base.scale, []), command_line):  # type: ignore[union-attr]
            cfg = to_config(self.composer.load_sweep_config(self.base, overrides))
            validate(cfg)
            identity = identify(cfg)
            if identity.key not in planned:
                folder = RunFolder(cfg.output_dir, identity.key)
                planned[identity.key] = Row(cfg, folder, folder.settled(cfg.retry_failed)), overrides
        return planned

    def _launch(self, jobs: list[list[str]]) -> list[int]:
        os.environ[RUNS_VARIABLE] = str(len(jobs))
        returns = self.launcher.launch(jobs, initial_job_idx=0)
        return [int(job.return_value or 0) for job in returns]


def exit_code(rows: list[Row], *codes: int) -> int:
    """2 if something is to be mended, else 1 if a run failed, else 3 if another process is at one, else 0."""
    failed = any(row.record is not None and row.record["status"] == "failed" for row in rows)
    found = {*codes, int(failed)}
    return next(code for code in (2, 1, BUSY, 0) if code in found)
