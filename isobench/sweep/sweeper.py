"""Carry out a sweep: plan its runs, start those that have not finished, and end with table and page."""

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from isobench.analyses import runner
from isobench.analyses.rows import needs_training
from isobench.analyses.runner import load_analysis
from isobench.common import environment
from isobench.common.errors import StorageError, UserError, extract_first_line, refuse
from isobench.common.files import refuse_bundle, sha256_json
from isobench.common.terminal import format_count, print_note, print_note_once
from isobench.config.command_line import drop_launch_arguments
from isobench.config.schema import Config, Selection, format_method_name
from isobench.data.availability import ask_hub_early, require_hub_files_of_some
from isobench.data.own_task import check_files, print_own_data
from isobench.data.sentence_settings import describe_own_settings
from isobench.data.weights import read_width
from isobench.runs.plan import read_plans, write_plan
from isobench.runs.run import Run, check_predictions, print_troubles
from isobench.runs.state import OPEN_STATES, add_states, read_live_heartbeat
from isobench.runs.trust import describe_changed_sources
from isobench.sweep.forecast import Forecast
from isobench.sweep.launchers import make_launcher
from isobench.sweep.overview import format_forecast, print_expectations, print_overview
from isobench.sweep.planning import find_places, keep_plan, make_plan, plan_runs
from isobench.tasks.kind import Kind, kind_of
from isobench.training.execute import (
    EXIT_BUSY,
    EXIT_USER_ERROR,
    check_export_folder,
    choose_exit_code,
    print_missing_exports,
)
from isobench.training.tracking import print_destination

if TYPE_CHECKING:
    from isobench.report.build import Report


class GridSweeper(Sweeper):
    """A Hydra sweeper that composes, checks and keys every run before anything is launched."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.loader, self.base = hydra_context.config_loader, config
        self.run_launcher = make_launcher(config.hydra)

    def sweep(self, arguments: list[str]) -> Any:
        """Run the sweep; Hydra calls this with the command line's overrides.

        Raises:
            SystemExit: the exit code is not 0 (`isobench.training.execute.choose_exit_code`).
            UserError: a run can't be planned, or the output folder can't be written.
        """
        refuse_bundle(Path(self.base.output_dir))
        runs = plan_runs(self.loader, self.base, arguments)
        check_files(run.cfg for run in runs)
        places = find_places(runs[0].cfg.experiment.order, runs)
        if analysis := runs[0].cfg.analysis:
            load_analysis(analysis)  # its settings are checked before anything is trained
            if not needs_training(analysis):
                print_own_data([run.cfg for run in runs])
                self._run_untrained_analysis(runs)
                return
        runs = add_states(runs)
        starts = (*OPEN_STATES, "failed") if self.base.retry_failed else OPEN_STATES
        todo = [run for run in runs if run.state in starts]
        if self.run_launcher.is_local and not self.base.dry_run:  # jobs elsewhere may reach the hub
            require_hub_files_of_some(run.cfg for run in todo)
        _check_before_start([run.cfg for run in todo], self.base.dry_run)
        print_own_data([run.cfg for run in runs])
        if self.base.dry_run:
            self._print_plan(runs, todo, starts)
            return
        todo.sort(key=lambda run: places[run.folder.key])
        for run in todo:
            kind_of(run.cfg.task).require_packages(run.cfg.task)
        if len(runs) > 1 or not todo:
            print(_format_announcement(runs, todo, starts), file=sys.stderr)
        _print_left_out(runs)
        for sentence in describe_changed_sources(runs):
            print_note(sentence)
        _add_tracking_groups(runs)
        print_destination(run.cfg for run in todo)
        if self.run_launcher.is_local:  # those that another process is carrying out may soon be free
            todo += [run for run in runs if run.state == "running"]
        codes = self._launch(todo, runs)
        if self.run_launcher.submitted_message:
            print(self.run_launcher.submitted_message)
            print(_format_next_step(runs[0].cfg))
            return
        self._report_and_exit(runs, codes)

    def _print_plan(self, runs: list[Run], todo: list[Run], starts: Sequence[str]) -> None:
        check_files((run.cfg for run in todo), ("embedded", "parquet"))
        print_overview(f"{runs[0].cfg.experiment.name or 'runs'}: nothing is started", runs, starts)
        print_expectations(todo, runs, self.run_launcher.describe(todo, runs) if todo else "")
        _print_left_out(runs)

    def _run_untrained_analysis(self, runs: list[Run]) -> None:
        name = runs[0].cfg.experiment.name or "analysis"
        refuse((not self.run_launcher.is_local, f"{name} trains nothing: leave hydra/launcher out"))
        if self.base.dry_run:
            _check_before_start([run.cfg for run in runs], is_dry=True)
            runner.print_analysis_plan(name, runs)
        else:
            runner.run_analysis(runs[0].cfg.experiment, runs)

    def _launch(self, todo: list[Run], runs: list[Run]) -> list[int]:
        """Write the plan of all ``runs``, carry out the runs ``todo``, and return exit codes."""
        output_dir, plan = runs[0].cfg.output_dir, make_plan(runs, environment.read_arguments())
        if not todo:
            with suppress(OSError):  # the folder may be one that can only be read
                write_plan(output_dir, plan)
            return []
        with keep_plan(output_dir, plan) as file:
            return self.run_launcher.launch(todo, runs, file)

    def _report_and_exit(self, runs: list[Run], codes: list[int]) -> None:
        """Print the table and name damaged records, analyse the runs or write their page, and exit with the code."""
        for run in runs:
            if run.record is None or run.record.status == "failed":
                run.read_record()
        check_predictions(runs)
        runs = add_states(runs)
        for run in runs:
            if run.record is not None:
                run.folder.remove_leftovers(run.record)
        from isobench.report.output.terminal import print_table  # imports pandas, which a dry run needs not

        is_alone = len(runs) == 1 and not runs[0].cfg.experiment.name
        has_page = self.base.report and not runs[0].cfg.analysis and not is_alone
        report = _build_report(runs, with_pairs=has_page)
        has_started = len(runs) > 1 or runs[0].folder.path.exists()  # else the reason is printed already
        if report is not None and has_started:
            print_table(report, runs)
        print_troubles(runs)
        _print_elsewhere(runs)
        print_missing_exports(runs)
        if runs[0].cfg.analysis:
            runner.analyse_trained_runs(runs[0].cfg.experiment, runs)
        elif has_page and report is not None:
            _write_page(report, runs)
        if is_alone and has_started:
            print(f"This run: {runs[0].folder.path}")
        damaged = [EXIT_USER_ERROR] if any(run.trouble for run in runs) else []
        unfinished = [EXIT_BUSY, *codes] if any(run.record is None for run in runs) else []
        if code := choose_exit_code(runs, *damaged, *unfinished):
            raise SystemExit(code)


def _print_elsewhere(runs: list[Run]) -> None:
    """Say which other processes are carrying out runs of this sweep."""
    left = [run.folder for run in runs if run.state not in ("done", "failed", "damaged")]
    with suppress(StorageError):  # the folder may be one that can only be read
        if held := [folder for folder in left if folder.path.exists() and folder.is_locked()]:
            beats = [beat for folder in held if (beat := read_live_heartbeat(folder.path))]
            processes = ", ".join(dict.fromkeys(f"process {beat.pid} on {beat.machine}" for beat in beats))
            print_note(f"{format_count(len(held), 'run')} left to {processes or 'another process'}, still at work")


def _check_before_start(configs: list[Config], is_dry: bool) -> None:
    """Raise UserError for the first run that can't be started: its folder for models or its method refuses."""
    for cfg in configs:
        check_export_folder(cfg)
    if is_dry:
        ask_hub_early(configs)  # the hub answers while torch is imported
    # Runs that agree in these are checked once; repr, because a section with lists can't be hashed.
    for cfg in {repr((cfg.encoder, cfg.task.max_length, cfg.head.name)): cfg for cfg in configs}.values():
        trained_on = None if cfg.analysis and not needs_training(cfg.analysis) else cfg.task.max_length
        for note in describe_own_settings(cfg.encoder, trained_on, pools=cfg.head.name == "isobn"):
            print_note_once(note)
    if not configs:
        return
    from isobench.training.instantiate import check_method_settings  # imports torch
    from isobench.training.monitor import check_monitors
    from isobench.training.optimizers import check_optimizer

    for cfg in configs:
        check_optimizer(cfg.optimization)
        check_monitors(cfg)
    for cfg in {repr((cfg.encoder, cfg.task)): cfg for cfg in configs}.values():
        kind_of(cfg.task).check_model(cfg)
    encoders = {repr(cfg.encoder): cfg.encoder for cfg in configs}
    widths = {name: read_width(encoder) for name, encoder in encoders.items()}
    calibrations: dict[tuple[Kind, int | None], list[Any]] = {}  # of runs of one kind and width, checked together
    for cfg in configs:
        kind = kind_of(cfg.task)
        width = None if kind.predicts_words else widths[repr(cfg.encoder)]
        calibrations.setdefault((kind, width), []).append(cfg.calibration)
    for (kind, width), of_group in calibrations.items():
        check_method_settings(of_group, kind, width)


def _add_tracking_groups(runs: list[Run]) -> None:
    """Give the runs a W&B group if they have none: a sweep without an experiment is one group."""
    group = f"sweep-{sha256_json(drop_launch_arguments(environment.read_arguments()))[:8]}"
    for run in runs:
        if len(runs) > 1 and not run.cfg.tracking.group and not run.cfg.experiment.name:
            run.cfg = replace(run.cfg, tracking=replace(run.cfg.tracking, group=group))


def _format_announcement(runs: list[Run], todo: list[Run], starts: Sequence[str]) -> str:
    counts = Counter(run.state for run in runs if run.state not in starts)
    elsewhere = counts["running"] + counts["queued"]
    phrases = [f"{counts['done']} finished"]
    again = "isobench status says why, retry_failed=true tries again"
    phrases += [f"{counts['failed']} failed before ({again})"] if counts["failed"] else []
    phrases += [f"{elsewhere} running or queued"] if elsewhere else []
    phrases += [f"{counts['damaged']} whose record can't be read"] if counts["damaged"] else []
    forecast = format_forecast(todo, Forecast(runs)) if todo else ""
    about = f", about {forecast} of device time" if forecast not in ("", "?") else ""
    return f"{format_count(len(runs), 'run')}: {', '.join(phrases)}, {len(todo)} to do{about}"


def _print_left_out(runs: list[Run]) -> None:
    """Say which of the sweep's settings some methods don't have, and so run without."""
    having: dict[str, dict[str, None]] = {}  # setting -> methods
    lacking: dict[str, dict[str, None]] = {}
    for run in runs:
        method = format_method_name(run.cfg.calibration)
        for name in run.left_out:
            lacking.setdefault(name, {})[method] = None
        for override in run.overrides:
            having.setdefault(override.key, {})[method] = None
    for name, methods in lacking.items():
        print_note(f"{name} is set for {', '.join(having[name])}; calibration={','.join(methods)} has no use for it")


def _build_report(runs: list[Run], with_pairs: bool) -> "Report | None":
    """Build the report that a sweep ends with: by its selection rule, else by the rule ``dev``, else None."""
    from isobench.report.build import build_report

    experiment = runs[0].cfg.experiment
    others = [] if experiment.selection.rule == Selection.rule else [Selection()]
    changed = describe_changed_sources(runs)
    for selection in (experiment.selection, *others):
        try:
            return build_report(replace(experiment, selection=selection), runs, with_pairs, changed)
        except UserError as error:
            print_note(f"selection by the rule {selection.rule}: {error}")
    return None


def _write_page(report: "Report", runs: list[Run]) -> None:
    """Write the page of a sweep's runs and print its path, or print one line that says why there is no page.

    The results are already written, and the sweep's exit code does not depend on the page. So errors are printed, not
    raised. Without a finished run there is no page, and the table has said so.
    """
    if not any(run.record is not None and run.record.status == "finished" for run in runs):
        return
    from isobench.report.output.page import write_report  # imports matplotlib

    experiment = runs[0].cfg.experiment
    try:
        page = write_report(report, runs)
    except Exception as error:
        if environment.is_debugging():
            raise
        print_note(f"no page is written: {extract_first_line(error)}")
        return
    if experiment.name and len(read_plans(runs[0].cfg.output_dir, experiment.name)) > 1:
        command = shlex.join(["isobench", "report", *environment.format_paper_flags()])
        print(f"The page shows this command's runs; for all sweeps: {command} +experiment={experiment.name}")
    print(f"Page: {page}")


def _format_next_step(cfg: Config) -> str:
    if cfg.analysis:
        return "When the runs have ended, repeat the command for the analysis"
    flags = environment.format_paper_flags()
    command = shlex.join(["isobench", "report", *flags, *drop_launch_arguments(environment.read_arguments())])
    return f"When the runs have ended, get table and page by: {command}"
