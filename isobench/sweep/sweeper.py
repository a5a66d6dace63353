"""Expand an experiment's grid, start the runs that have not finished, and end with the table."""

import dataclasses
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from isobench.analyses import runner
from isobench.analyses.names import needs_training
from isobench.common import environment
from isobench.common.errors import UserError
from isobench.common.files import make_storage_error, refuse_file, sha256_json
from isobench.config.schema import Config
from isobench.data.own_task import check_own_files, complete_config, print_own_data
from isobench.report.sweep_table import print_table
from isobench.runs.identity import identify
from isobench.runs.layout import runs_folder
from isobench.runs.row import Row, check_predictions, print_troubles
from isobench.runs.state import OPEN_STATES, RunState, add_states, find_run_states
from isobench.runs.validate import validate_config
from isobench.sweep import saved_commands
from isobench.sweep.auto import AutomaticLauncher, replace_joblib
from isobench.sweep.forecast import Forecast
from isobench.sweep.launchers import InProcessLauncher
from isobench.sweep.memory_forecast import print_memory_forecast
from isobench.sweep.method_settings import describe_left_out
from isobench.sweep.order import find_places
from isobench.sweep.page import format_report_command, write_page
from isobench.sweep.plan import PlannedRun, plan_runs
from isobench.sweep.state_table import format_forecast, print_overview
from isobench.training.execute import (
    EXIT_BUSY,
    EXIT_DONE,
    EXIT_USER_ERROR,
    ask_hub_early,
    check_export_folder,
    choose_exit_code,
    print_missing_exports,
    require_hub_files_of_some,
    require_metric_packages,
)


class GridSweeper(Sweeper):
    """A Hydra sweeper that composes, checks and keys every run before anything is launched."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra."""
        self.loader, self.base = hydra_context.config_loader, config
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )
        self.launcher: Launcher = replace_joblib(launcher)
        self.launcher.setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def sweep(self, arguments: list[str]) -> Any:
        """Run the sweep; Hydra calls this with the command line's overrides.

        Raises:
            SystemExit: the exit code is not 0 (`isobench.training.execute.choose_exit_code`).
            UserError: a run can't be planned, or the output folder can't be written.
        """
        refuse_file("output_dir", self.base.output_dir)
        planned = list(plan_runs(self.loader, self.base, arguments).values())
        rows = [run.row for run in planned]
        check_own_files(row.cfg for row in rows)
        places = find_places(rows[0].cfg.experiment.order, rows)
        if analysis := rows[0].cfg.analysis:
            runner.load_analysis_function(analysis)  # its settings are checked before anything is trained
            if not needs_training(analysis):
                print_own_data([row.cfg for row in rows])
                self._run_untrained_analysis(rows)
                return
        states = find_run_states(rows)
        starts = (*OPEN_STATES, "failed") if self.base.retry_failed else OPEN_STATES
        open_runs = [(run, state) for run, state in zip(planned, states, strict=True) if state.name in starts]
        if not self.base.dry_run and isinstance(self.launcher, InProcessLauncher):  # jobs of others may reach the hub
            require_hub_files_of_some(run.row.cfg for run, _ in open_runs)
        for run, _ in open_runs:
            check_export_folder(run.row.cfg)
        if self.base.dry_run:
            ask_hub_early(run.row.cfg for run, _ in open_runs)  # the hub answers while torch is imported
        check_methods([run.row.cfg for run, _ in open_runs])
        print_own_data([row.cfg for row in rows])
        if self.base.dry_run:
            print_overview(f"{rows[0].cfg.experiment.name or 'runs'}: nothing is started", rows, states, starts)
            print_memory_forecast([run.row.cfg for run, _ in open_runs])
            print_left_out(planned)
            return
        # A run that killed its process may do so again: last.
        open_runs.sort(key=lambda pair: (pair[1].was_killed, places[pair[0].row.folder.key]))
        for run, _ in open_runs:
            require_metric_packages(run.row.cfg)
        todo = [dataclasses.replace(run, overrides=self._add_tracking_group(run)) for run, _ in open_runs]
        print(format_announcement(rows, states, todo), file=sys.stderr)
        print_left_out(planned)
        if isinstance(self.launcher, AutomaticLauncher):
            self.launcher.rows = rows
        codes = self._launch_and_record(todo, rows)
        if message := getattr(self.launcher, "submitted_message", None):
            print(message)
            print(format_report_command(rows[0].cfg, sys.argv[1:]))
            return
        self._report_and_exit(rows, codes)

    def _run_untrained_analysis(self, rows: list[Row]) -> None:
        """Carry out an analysis that trains nothing, in this process."""
        name = rows[0].cfg.experiment.name or "analysis"
        if not isinstance(self.launcher, InProcessLauncher):
            raise UserError(
                f"{name} trains nothing: leave hydra/launcher out (on a cluster, submit the command itself)"
            )
        if self.base.dry_run:
            runner.print_analysis_plan(name, rows)
        else:
            runner.run_analysis(rows[0].cfg.experiment, rows)

    def _report_and_exit(self, rows: list[Row], codes: list[int]) -> None:
        """Print the table and name damaged records, analyse the runs or write their page, and exit with the code."""
        for row in rows:
            if row.record is None or row.record.status == "failed":
                row.read_record()
        check_predictions(rows)
        rows = add_states(rows)
        for row in rows:
            if row.record is not None:
                row.folder.remove_leftovers(row.record)
        print_table(rows[0].cfg.experiment, rows)
        print_troubles(rows)
        print_missing_exports(rows)
        if rows[0].cfg.analysis:
            runner.analyse_trained_runs(rows[0].cfg.experiment, rows)
        elif self.base.report:
            write_page(rows, sys.argv[1:])
        damaged = EXIT_USER_ERROR if any(row.trouble for row in rows) else EXIT_DONE
        elsewhere = EXIT_BUSY if any(row.state in ("running", "queued") for row in rows) else EXIT_DONE
        have_all_ended = all(row.record is not None for row in rows)
        if code := choose_exit_code(rows, damaged, elsewhere, *([] if have_all_ended else codes)):
            raise SystemExit(code)

    def _add_tracking_group(self, run: PlannedRun) -> list[str]:
        """Add a W&B group to a run's overrides where it has none; a sweep without an experiment is one group."""
        if run.row.cfg.tracking.group or run.row.cfg.experiment.name:
            return run.overrides
        return [
            *run.overrides,
            f"tracking.group=sweep-{sha256_json(saved_commands.drop_launch_arguments(sys.argv[1:]))[:8]}",
        ]

    def _launch_and_record(self, todo: list[PlannedRun], rows: list[Row]) -> list[int]:
        """Save the sweep's command, launch the runs, and return their exit codes."""
        output_dir = rows[0].cfg.output_dir
        command = saved_commands.SweepCommand(
            rows[0].cfg.experiment.name, saved_commands.drop_launch_arguments(sys.argv[1:]), str(Path.cwd())
        )
        if not todo:
            saved_commands.save_command(output_dir, command)
            return []
        try:
            Path(output_dir).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise make_storage_error(error, Path(output_dir)) from error
        new_file = saved_commands.save_command(output_dir, command)
        codes = [EXIT_USER_ERROR]  # if launching raises
        try:
            environment.note_run_count(len(todo))
            returns = self.launcher.launch([run.overrides for run in todo], initial_job_idx=0)
            codes = [int(job.return_value or 0) for job in returns]
        finally:
            if new_file and EXIT_USER_ERROR in codes and not list(runs_folder(output_dir).glob("*")):
                saved_commands.remove_command(new_file)  # nothing was started
        return codes


def format_announcement(rows: list[Row], states: list[RunState], todo: list[PlannedRun]) -> str:
    """Announce in one line how many runs a sweep has, in which states, how many it starts, and their forecast."""
    starting = {id(run.row) for run in todo}
    counts = Counter(state.name for row, state in zip(rows, states, strict=True) if id(row) not in starting)
    elsewhere = counts["running"] + counts["queued"]
    parts = [f"{counts['done']} finished"]
    parts += [f"{counts['failed']} failed before (retry_failed=true tries them again)"] if counts["failed"] else []
    parts += [f"{elsewhere} running or queued"] if elsewhere else []
    parts += [f"{counts['damaged']} with a damaged record"] if counts["damaged"] else []
    forecast = format_forecast([run.row for run in todo], Forecast(rows)) if todo else ""
    about = f", about {forecast} of device time" if forecast not in ("", "?") else ""
    return f"{len(rows)} runs: {', '.join(parts)}, {len(todo)} to do{about}"


def print_left_out(planned: list[PlannedRun]) -> None:
    """Say on standard error which methods do not have a setting that others were given."""
    for sentence in describe_left_out((run.row, run.overrides, run.left_out) for run in planned):
        print(f"isobench: {sentence}", file=sys.stderr)


def check_methods(configs: list[Config]) -> None:
    """Raise UserError for the first method that refuses its settings; imports torch if there is a config."""
    if configs:
        from isobench.training.instantiate import check_method_settings

        for generates in (False, True):
            of_kind = (cfg for cfg in configs if (cfg.task.generation is not None) == generates)
            check_method_settings((cfg.calibration for cfg in of_kind), generates)


def print_run_plan(cfg: Config) -> None:
    """Check a run that belongs to no sweep and print its state: what ``dry_run`` shows."""
    cfg = complete_config(cfg)
    validate_config(cfg)
    rows = [Row.of(cfg, identify(cfg).key)]
    check_own_files([cfg])
    check_export_folder(cfg)
    ask_hub_early([cfg])  # the hub answers while torch is imported
    check_methods([cfg])
    print_own_data([cfg])
    states = find_run_states(rows)
    print_overview("nothing is started", rows, states)
    print_memory_forecast([cfg] if states[0].name in OPEN_STATES else [])
