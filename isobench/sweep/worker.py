"""What a job does, locally or under SLURM: its runs, and the right thing when it is told to stop."""

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
from isobench.common.interruption import Interrupted, raise_interrupted
from isobench.config.explain import print_error
from isobench.config.schema import Config
from isobench.runs.folder import RunFolder
from isobench.runs.heartbeat import read_live_heartbeat, wait_for_beat
from isobench.runs.row import Row
from isobench.runs.state import find_run_state
from isobench.training.execute import EXIT_BUSY, EXIT_USER_ERROR, execute_run, format_run_name

LOCK_TIMEOUT = 300.0  # seconds a file server may keep a dead machine's lock


class Worker:
    """A job's runs. submitit pickles it, calls it in the job, and pickles it again when the job is requeued.

    It holds the configs themselves: editing a YAML after submitting changes nothing for what waits.

    Args:
        runs: config and key of every run.
        first, share: where to begin, and how many runs from there on are this process's own; after them it takes
            what nobody else has. None: the processes of a SLURM job share its runs equally.
        threads: torch's threads; None leaves them to SLURM's cpus-per-task.
    """

    def __init__(
        self,
        runs: list[tuple[Config, str]],
        first: int | None = None,
        share: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.runs, self.first, self.share, self.threads = runs, first, share, threads
        self.created = time.time()
        self.devices = os.environ.get("CUDA_VISIBLE_DEVICES")  # submitit hides a local job's

    def __call__(self) -> list[int]:
        """Carry out the runs; returns their exit codes."""
        job = JobEnvironment()
        self._prepare(job)
        try:
            return self._execute_share(job.global_rank, job.num_tasks)
        except Interrupted as stop:
            requeue_or_exit(stop.signum, job)
            raise

    def _execute_share(self, rank: int, processes: int) -> list[int]:
        count = len(self.runs)
        share = self.share or math.ceil(count / processes)
        first = self.first if self.first is not None else rank * share
        codes = []
        for number in range(count):
            cfg, key = self.runs[(first + number) % count]
            own = number < share
            try:
                folder = RunFolder(cfg.output_dir, key)
                # With retry_failed, a failure counts only if it came after this job was made.
                row = Row(cfg, folder, folder.read_final_record(cfg.retry_failed, self.created))
                if row.record is not None or (not own and self._is_taken(row)):
                    continue
                print(f"isobench: {format_run_name(cfg)}", flush=True)
                codes.append(self._execute_one(row, patient=own))
            except UserError as error:
                print_error(error)
                codes.append(EXIT_USER_ERROR)
                if isinstance(error, StorageError):
                    return codes
        if rank == 0 and processes > 1:
            self._wait_for_others()
        return codes

    def checkpoint(self) -> DelayedSubmission:
        """Called by submitit when the job is requeued: the same again; finished runs are passed over."""
        return DelayedSubmission(self)

    def _is_taken(self, row: Row) -> bool:
        """Whether a run outside this process's share is at work, or killed its process since this job was made."""
        state = find_run_state(row, {})
        return state.name == "running" or (
            state.was_killed and state.beat is not None and state.beat.updated > self.created
        )

    def _execute_one(self, row: Row, patient: bool) -> int:
        """Carry out one run. A lock that a dead machine still holds is waited for; a living process is left to it."""
        code = execute_run(row.cfg, since=self.created)[0]
        deadline = time.monotonic() + LOCK_TIMEOUT
        while code == EXIT_BUSY and patient and time.monotonic() < deadline and not wait_for_beat(row.folder.path):
            code = execute_run(row.cfg, since=self.created)[0]
        return code

    def _prepare(self, job: JobEnvironment) -> None:
        signal.signal(signal.SIGTERM, raise_interrupted)  # submitit passes it over; in training, it is noted
        environment.note_job(job.job_id, str(Path(job.paths.stderr)))
        if job.num_tasks > 1:
            environment.note_device_share(job.num_tasks)
        threads = self.threads or os.environ.get("SLURM_CPUS_PER_TASK")
        if threads:
            os.environ["OMP_NUM_THREADS"] = str(threads)
        if os.environ.get("SUBMITIT_EXECUTOR") == "local":
            processes, number = math.ceil(len(self.runs) / (self.share or 1)), (self.first or 0) // (self.share or 1)
            environment.note_device_share(math.ceil(processes / assign_gpu(self.devices, number)))

    def _wait_for_others(self) -> None:
        """The first process of a job requeues it, so it stays until the others are through."""
        folders = [RunFolder(cfg.output_dir, key).path for cfg, key in self.runs]
        job = environment.read_job()
        while any((beat := read_live_heartbeat(folder)) and beat.job == job for folder in folders):
            time.sleep(2)


def assign_gpu(devices: str | None, number: int) -> int:
    """Give local process ``number`` its GPU in turn, of those this user's shell shows (all if it doesn't say).

    Returns how many there are; 1 without any: the machine itself.
    """
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
    import torch

    if (count := torch.cuda.device_count()) > 1:
        names = devices.split(",") if devices else [str(index) for index in range(count)]
        os.environ["CUDA_VISIBLE_DEVICES"] = names[number % len(names)]
    return max(1, count)


def requeue_or_exit(signum: int, job: JobEnvironment) -> None:
    """The checkpoint is written: requeue the job if it may live on, and end.

    submitit's own handler, which is in place again, requeues; on TERM too, which is all that some clusters
    send before they preempt. A job that was cancelled is not brought back.
    """
    handler: Any = signal.getsignal(signal.SIGUSR2)
    slurm = os.environ.get("SUBMITIT_EXECUTOR") == "slurm"
    if callable(handler) and (
        signum == signal.SIGUSR2 or (slurm and signum == signal.SIGTERM and is_slurm_job_running(job))
    ):
        handler(signal.SIGUSR2, None)  # ends the process, but in the job's other processes
        time.sleep(120)  # the requeue ends those
    raise SystemExit(128 + signum)


def is_slurm_job_running(job: JobEnvironment) -> bool:
    """Whether SLURM still takes the job for running: not cancelled, not at its end."""
    command = ["scontrol", "show", "job", "-o", job.job_id]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return False
    return "JobState=RUNNING" in answer.stdout
