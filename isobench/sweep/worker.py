"""Carry out the runs of a SLURM job, and save and requeue when a signal stops the job."""

import math
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from submitit import JobEnvironment
from submitit.helpers import DelayedSubmission

from isobench.common import environment
from isobench.common.errors import StorageError, UserError
from isobench.common.interruption import STOP_SIGNALS, Interrupted, raise_interrupted
from isobench.config.explain import print_error
from isobench.config.schema import Config
from isobench.runs.folder import RunFolder
from isobench.runs.heartbeat import read_live_heartbeat, wait_for_beat
from isobench.runs.identity import identify
from isobench.runs.run import Run, format_run_name
from isobench.runs.state import find_run_state
from isobench.training.execute import EXIT_BUSY, EXIT_USER_ERROR, execute_run

LOCK_TIMEOUT = 300.0  # seconds for which a file server may keep a dead machine's lock


class Worker:
    """A SLURM job's runs. submitit pickles it, calls it in the job, and pickles it again when the job is requeued.

    It holds the configs themselves, so that editing a YAML after submitting does not change jobs in the queue. Where
    a job has several processes, each carries out its share of the runs, then those that no other has begun.

    Args:
        runs: config and key of every run.
    """

    def __init__(self, runs: list[tuple[Config, str]]) -> None:
        self.runs = runs
        self.created = time.time()

    def __call__(self) -> list[int]:
        """Carry out the runs and return the exit codes of those that were started.

        Raises:
            SystemExit: a signal stopped the job.
        """
        job = JobEnvironment()
        passing_over = signal.getsignal(signal.SIGTERM)  # submitit's handler
        self._prepare(job)
        try:
            codes = self._execute_share(job.global_rank, math.ceil(len(self.runs) / job.num_tasks))
            if job.global_rank == 0 and job.num_tasks > 1:
                self._wait_for_others()
            return codes
        except Interrupted as stop:
            requeue_or_exit(stop.signum, job)
            raise
        finally:  # nothing is left to save: a later signal must not disturb the end of the process
            signal.signal(signal.SIGTERM, passing_over)

    def _prepare(self, job: JobEnvironment) -> None:
        """Set this process's handler of SIGTERM, its messages to later processes, and its threads."""
        signal.signal(signal.SIGTERM, raise_interrupted)  # submitit ignores it; training replaces this handler
        environment.share_processor()
        environment.keep_freed_memory()
        environment.note_job(job.job_id, str(Path(job.paths.stderr)))
        if job.num_tasks > 1:
            environment.note_device_share(job.num_tasks)
        if threads := os.environ.get("SLURM_CPUS_PER_TASK"):
            os.environ["OMP_NUM_THREADS"] = threads

    def _execute_share(self, rank: int, share: int) -> list[int]:
        """Carry out this process's share of the runs, then those that no other process has begun."""
        first = rank * share
        codes = []
        for place, (cfg, key) in enumerate([*self.runs[first:], *self.runs[:first]]):
            is_own = place < share
            try:
                folder = RunFolder(cfg.output_dir, key)
                # With retry_failed, a failure from before this job was created is tried again.
                row = Run(cfg, folder, folder.read_final_record(cfg.retry_failed, self.created))
                if row.record is not None or (not is_own and self._is_taken(row)):
                    continue
                _require_same_run(cfg, key)
                print(f"isobench: {format_run_name(cfg)}", flush=True)
                codes.append(self._execute_one(row, is_patient=is_own))
            except UserError as error:
                print_error(error)
                codes.append(EXIT_USER_ERROR)
                if isinstance(error, StorageError):
                    return codes
        return codes

    def checkpoint(self) -> DelayedSubmission:
        """Return the job to requeue, which is the same one: it skips finished runs. submitit calls this."""
        return DelayedSubmission(self)

    def _is_taken(self, row: Run) -> bool:
        """True if another worker is running this run, or the run killed its process after this job was created."""
        state = find_run_state(row, {})
        return state.name == "running" or (
            state.was_killed and state.beat is not None and state.beat.updated > self.created
        )

    def _execute_one(self, row: Run, is_patient: bool) -> int:
        """Carry out one run and return its exit code.

        If another process holds the run's lock, a patient worker tries again for LOCK_TIMEOUT seconds, since the
        holder may be a machine that died. It stops trying when the run's heartbeat shows that the holder is alive.
        """
        code = execute_run(row.cfg, since=self.created)[0]
        deadline = time.monotonic() + LOCK_TIMEOUT
        while code == EXIT_BUSY and is_patient and time.monotonic() < deadline and not wait_for_beat(row.folder.path):
            code = execute_run(row.cfg, since=self.created)[0]
        return code

    def _wait_for_others(self) -> None:
        """Wait until the job's other processes have ended: only the first can requeue the job, so it must not end."""
        folders = [RunFolder(cfg.output_dir, key).path for cfg, key in self.runs]
        job = environment.read_job()
        while any((beat := read_live_heartbeat(folder)) and beat.job == job for folder in folders):
            time.sleep(2)


def _require_same_run(cfg: Config, key: str) -> None:
    """Raise UserError if a run's key has changed since its job was submitted: the job would compute another run."""
    if identify(cfg).key != key:
        raise UserError(
            f"{format_run_name(cfg)}: its settings, data or weights have changed since this job was submitted; "
            "start the sweep again"
        )


def requeue_or_exit(signum: int, job: JobEnvironment) -> None:
    """Requeue a job whose run has saved its checkpoint, and end the process. A cancelled job is not requeued.

    submitit's handler of SIGUSR2 requeues; it is in place again after training. It is called for SIGTERM too, because
    some clusters send only SIGTERM before they preempt a job. Signals that come meanwhile are ignored: they would end
    the program that asks SLURM to requeue, and the requeue itself sends SIGTERM.

    Raises:
        SystemExit: always.
    """
    handler: Any = signal.getsignal(signal.SIGUSR2)
    for other in STOP_SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    if callable(handler) and (signum == signal.SIGUSR2 or (signum == signal.SIGTERM and is_slurm_job_running(job))):
        handler(signal.SIGUSR2, None)  # ends the job's first process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(120)  # in the others: the requeue ends them
    raise SystemExit(128 + signum)


def is_slurm_job_running(job: JobEnvironment) -> bool:
    """True if SLURM still lists the job as running: it was not cancelled and has not come to its end."""
    command = ["scontrol", "show", "job", "-o", job.job_id]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return False
    return "JobState=RUNNING" in answer.stdout
