"""Expand the experiment's grid, run what isn't finished, end with the table."""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from isobench.errors import UserError
from isobench.execute import BUSY, DONE, MEND, exit_code
from isobench.files import sha256_json
from isobench.report.table import Row, print_table
from isobench.run import RunFolder, identify
from isobench.schema import Config
from isobench.sweep import commands
from isobench.sweep.forecast import Forecast
from isobench.sweep.overview import print_overview, time_of
from isobench.sweep.plan import Planned, plan
from isobench.sweep.state import OPEN, states_of
from isobench.validate import validate

RUNS_VARIABLE = "ISOBENCH_RUNS"  # how many runs this sweep starts, for their progress lines


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
        planned = list(plan(self.composer, self.base, arguments).values())
        rows = [run.row for run in planned]
        states = states_of(rows)
        if self.base.dry_run:
            print_overview(f"{self.base.experiment.name or 'runs'}: nothing is started", rows, states)
            return
        starts = (*OPEN, "failed") if self.base.retry_failed else OPEN
        open_runs = [(run, state) for run, state in zip(planned, states, strict=True) if state.name in starts]
        open_runs.sort(key=lambda pair: pair[1].was_killed)  # what killed its process once may do so again: last
        todo = [run for run, _ in open_runs]
        elsewhere = sum(state.name in ("running", "queued") for state in states)
        print(announcement(rows, todo, elsewhere), file=sys.stderr)
        codes = self._run([dataclasses.replace(run, overrides=self._grouped(run)) for run in todo], rows)
        if note := getattr(self.launcher, "submitted", None):
            print(note)
            return
        for row in rows:
            row.record = row.folder.result()
        for row, state in zip(rows, states_of(rows), strict=True):
            row.state = state.name
            if row.record is not None:
                row.folder.tidy(row.record)
        print_table(self.base.experiment, rows)
        if code := exit_code(rows, *codes, BUSY if elsewhere else DONE):
            raise SystemExit(code)

    def _grouped(self, run: Planned) -> list[str]:
        """A run's overrides with its W&B group; a sweep without an experiment makes one of its command."""
        if run.row.cfg.tracking.group or run.row.cfg.experiment.name:
            return run.overrides
        return [*run.overrides, f"tracking.group=sweep-{sha256_json(commands.lasting(sys.argv[1:]))[:8]}"]

    def _run(self, todo: list[Planned], rows: list[Row]) -> list[int]:
        """Launch what is to do; the codes of what was launched."""
        output_dir = rows[0].cfg.output_dir
        if not todo:
            commands.remember(output_dir, sys.argv[1:], self.base.experiment.name)
            return []
        new = not Path(output_dir).exists()
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        commands.remember(output_dir, sys.argv[1:], self.base.experiment.name)
        codes = [MEND]  # unless launching ends well
        try:
            codes = self._launch(todo)
        finally:
            if new and MEND in codes and not list(Path(output_dir).glob("runs/*")):
                commands.forget(output_dir)  # nothing was started: nothing stays
        return codes

    def _launch(self, todo: list[Planned]) -> list[int]:
        """Start the runs; again for the rest if one took its whole pool of processes with it."""
        os.environ[RUNS_VARIABLE] = str(len(todo))
        try:
            returns = self.launcher.launch([run.overrides for run in todo], initial_job_idx=0)
        except Exception as error:
            if type(error).__name__ != "TerminatedWorkerError":
                raise
            rest = [run for run in todo if run.row.folder.settled(run.row.cfg.retry_failed) is None]
            print(f"isobench: a process was killed (out of memory?); {len(rest)} runs left", file=sys.stderr)
            if len(rest) == len(todo):
                raise UserError("processes are killed before any run ends: fewer of them at once?") from error
            return [1, *self._launch(rest)]
        return [int(job.return_value or 0) for job in returns]


def announcement(rows: list[Row], todo: list[Planned], elsewhere: int) -> str:
    """What a sweep will do: runs, finished, at work elsewhere, to do, and the forecast for these."""
    finished = len(rows) - len(todo) - elsewhere
    line = f"{len(rows)} runs: {finished} finished" + (f", {elsewhere} running or queued" if elsewhere else "")
    forecast = time_of([run.row for run in todo], Forecast(rows)) if todo else ""
    return f"{line}, {len(todo)} to do" + (f", about {forecast} of device time" if forecast not in ("", "?") else "")


def show_plan(configs: list[Config]) -> None:
    """What ``dry_run`` prints for runs that are no sweep."""
    rows = []
    for cfg in configs:
        validate(cfg)
        folder = RunFolder(cfg.output_dir, identify(cfg).key)
        rows.append(Row(cfg, folder, folder.result()))
    print_overview("nothing is started", rows, states_of(rows))
