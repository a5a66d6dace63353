"""Carry out a plan's runs: what a sweep's processes, a SLURM job and a second machine on the same disk all do.

Workers know nothing of each other. Each takes the first run that has no record and whose lock is free, trains it, and
goes on with the next. The lock makes every run happen once. What a worker leaves behind, whatever ends it, is a run
without a record and with a free lock: any other takes it, from its last checkpoint.
"""

import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from isobench.common import environment
from isobench.common.errors import UserError, doing, refuse
from isobench.common.files import RECORD_LIMIT, read_bounded
from isobench.common.interruption import raise_if_noted
from isobench.config.command_line import split_config_dirs
from isobench.runs.folder import CLOCK_TOLERANCE, RunFolder, jobs_folder, plans_folder
from isobench.runs.plan import Plan, parse_plan
from isobench.runs.run import Run
from isobench.runs.state import add_state, read_live_heartbeat
from isobench.runs.trust import UntrustedError, require_own_classes, stay_in_folder
from isobench.tasks.kind import load_kind
from isobench.training.execute import (
    EXIT_BUSY,
    EXIT_DONE,
    EXIT_FAILED,
    choose_exit_code,
    execute_run,
)

EXIT_STORAGE = 4  # of a worker: nothing can be written, by the sweep's other workers neither
POLL_SECONDS = 1.0
OTHERS_SECONDS = 45.0  # for which a worker waits at its end for runs of others: those of a killed sweep are soon free
LOCK_SECONDS = 300.0  # for which a file server may keep the lock of a machine that died


def work(runs: Sequence[Run], since: float, killed_since: float | None = None, is_numbered: bool = True) -> int:
    """Carry out the runs that have no record, in their order, and return the gravest exit code.

    Runs that killed their process come last, because they may do so again.

    Args:
        since: a failure from before this time is tried again, with ``retry_failed``.
        killed_since: leave out the runs that killed a process of this machine after this time; by default now.
        is_numbered: whether the line that tells a run's outcome begins with its number.
    """
    killed_since = time.time() if killed_since is None else killed_since
    labels = {run.folder.key: f"[{number}/{len(runs)}] " * is_numbered for number, run in enumerate(runs, 1)}
    waiting = sorted(runs, key=lambda run: add_state(run, {}).was_killed)
    codes, progress = {EXIT_DONE}, time.monotonic()
    while True:
        outcomes = [(run, _carry_out(run, labels[run.folder.key], since, killed_since)) for run in waiting]
        codes |= {code for _, code in outcomes} - {EXIT_BUSY}
        busy = [run for run, code in outcomes if code == EXIT_BUSY]
        if len(busy) < len(waiting):
            progress = time.monotonic()
        waiting = busy
        are_beating = all(read_live_heartbeat(run.folder.path) for run in waiting)
        if not waiting or time.monotonic() - progress > (OTHERS_SECONDS if are_beating else LOCK_SECONDS):
            break
        time.sleep(POLL_SECONDS)
    codes |= {EXIT_BUSY} if waiting else set()
    return choose_exit_code([], *codes)


def _carry_out(run: Run, label: str, since: float, killed_since: float) -> int:
    raise_if_noted()
    if _has_ended(run, since):
        return EXIT_DONE
    seen = add_state(run, {})
    # Another machine may have died itself, but hardly twice.
    if seen.was_killed and seen.beat and (seen.beat.machine == socket.gethostname() or seen.beat.attempt > 1):
        latest = time.time() + CLOCK_TOLERANCE  # a beat from later says that a clock was set back
        is_recent = killed_since < seen.beat.updated <= latest
        if is_recent and not run.folder.is_locked():  # in a container of this name a live process looks dead
            return EXIT_FAILED
    return execute_run(run, label, since)


def _has_ended(run: Run, since: float) -> bool:
    """Return whether a run has a record that stays; a damaged one does too, until somebody removes it."""
    if not run.folder.result_file.exists():
        return False
    try:
        return not run.cfg.retry_failed or run.folder.read_final_record(True, since) is not None
    except UserError:
        return True


def format_work_command(plan: Path, runs: Sequence[Run], since: float) -> list[str]:
    """Return the command of a worker: it may run the classes that this command's own settings and folders name."""
    folders = [Path(folder) for folder in split_config_dirs(environment.read_arguments())[0]]
    try:
        for run in runs:
            require_own_classes(run.cfg, folders)
        trust = []
    except UntrustedError:  # the user has typed the class, or its config
        trust = ["--trust"]
    named = [*environment.format_paper_flags(), *(f"--config-dir={folder}" for folder in folders), *trust]
    settings = [f"output_dir={runs[0].cfg.output_dir}", f"--since={since}"]
    return [sys.executable, "-m", "isobench", "work", *named, str(plan.absolute()), *settings]


def is_foreign(file: Path, folder: Path) -> bool:
    """Return True if a plan is not one of the output folder's own, nor a copy that its jobs work on."""
    place = file.absolute().parent
    return plans_folder(folder.absolute()) != place and jobs_folder(folder.absolute()) != place.parent


def read_plan(
    file: Path, output_dir: str | None, folders: Sequence[Path], is_trusted: bool
) -> tuple[Plan, list[Run]]:
    """Read a plan to carry out, and its runs; nothing in it is composed or checked again.

    Args:
        file: the plan, of an output folder or a bundle; somebody else may have written it.
        output_dir: where the runs go; None takes the output folder in which the plan is.
        folders: the user's own folders of configs, whose classes may be run.
        is_trusted: whether all classes that the plan names may be run.
    """
    folder = Path(output_dir or file.parent.parent)
    refuse(
        (not file.is_file(), f"{file} is no file: name a plan, OUTPUT_DIR/plans/NAME.json"),
        (
            output_dir is None and is_foreign(file, folder),
            f"{file} is in no output folder's plans/: say where its runs go, output_dir=FOLDER",
        ),
    )
    with doing(f"reading the plan {file}"):
        plan = parse_plan(read_bounded(file, RECORD_LIMIT), str(folder))
    if is_trusted:
        for cfg, _ in plan.runs:
            load_kind(cfg.task)
    else:
        plan = replace(plan, runs=[(require_own_classes(cfg, folders), identity) for cfg, identity in plan.runs])
        if is_foreign(file, folder):
            plan = replace(plan, runs=[(stay_in_folder(cfg), identity) for cfg, identity in plan.runs])
    return plan, [Run(cfg, RunFolder(cfg.output_dir, own.key), None, identity=own) for cfg, own in plan.runs]
