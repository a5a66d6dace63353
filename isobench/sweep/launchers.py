"""Hydra launchers: in this process, in local processes, and in SLURM job arrays (the last two by submitit)."""

import contextlib
import io
import math
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import is_storage_error, make_storage_error
from isobench.common.interruption import Interrupted, handle_signals, hold_signals, raise_interrupted
from isobench.config.bounds import (
    Bound,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check_values,
    read_hints,
)
from isobench.config.schema import Config
from isobench.runs import jobs
from isobench.runs.folder import RunFolder
from isobench.runs.identity import identify
from isobench.runs.layout import jobs_folder, run_folder_name
from isobench.sweep.compose import Composer
from isobench.sweep.saved_commands import drop_launch_arguments
from isobench.training.execute import EXIT_DONE, EXIT_FAILED, execute_run

SAVE_TIMEOUT = 30.0  # seconds for the local processes to save when their sweep is interrupted
SBATCH_OPTION = Bound(lambda option: "=" in option, "must be an sbatch option with its value: NAME=VALUE")


class InProcessLauncher(Launcher):
    """Carries out one run after another in this process (``hydra/launcher=sequential``).

    Hydra's own launcher does so too, but composes every config a second time.
    """

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra."""
        self.loader, self.config = hydra_context.config_loader, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Carry out the runs. A run that fails does not stop the others; a disk that can't be written to does."""
        composer = Composer(self.loader, self.config)
        returns = []
        for number, overrides in enumerate(job_overrides, initial_job_idx + 1):
            code, _ = execute_run(composer.compose(overrides), f"[{number}/{len(job_overrides)}] ")
            returns.append(make_job_return(code))
        return returns


class SubmititLauncher(Launcher):
    """What the two launchers on submitit have in common: submit jobs, then wait for them or leave them alone."""

    name: str
    wait: bool
    held_signals: tuple[signal.Signals, ...] = ()  # held back while jobs are submitted; these never get them
    submitted_message: str | None = None  # for the user, after a launch that did not wait

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra."""
        self.loader, self.config = hydra_context.config_loader, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the runs; wait for them if ``wait`` is set.

        Raises:
            UserError: the scheduler refuses the jobs, or can't be reached.
            StorageError: the output folder can't be written.
        """
        composer = Composer(self.loader, self.config)
        configs = [composer.compose(overrides) for overrides in job_overrides]
        runs = [(cfg, identify(cfg).key) for cfg in configs]
        output_dir = configs[0].output_dir
        stamp = time.strftime("%Y%m%d-%H%M%S")
        folder = jobs_folder(output_dir) / f"{stamp}-{os.getpid()}"
        try:
            with hold_signals(*self.held_signals):
                submission = self._submit(runs, folder.absolute())
                submission.save(output_dir)
        except UserError:
            raise
        except Exception as error:  # submitit and the scheduler raise many kinds
            remove_submission_folder(folder)
            if is_storage_error(error):
                raise make_storage_error(error, folder) from error  # type: ignore[arg-type]
            raise UserError(f"hydra/launcher={self.name}: {explain_refusal(error)}") from error
        here = f"{len(runs)} runs in {self.name} job {submission.job}, logs in {folder}"
        if not self.wait:
            again = shlex.join(["isobench", "status", *drop_launch_arguments(sys.argv[1:])])
            self.submitted_message = f"Submitted {here}.\nHow it goes: {again}"
            return []
        print(f"Waiting for {here}", file=sys.stderr, flush=True)
        folders = [RunFolder(output_dir, key) for _, key in runs]
        try:
            with handle_signals(raise_interrupted, signal.SIGTERM):
                jobs.wait_for_runs(output_dir, submission, folders)
        except (KeyboardInterrupt, Interrupted):
            self._handle_interrupted_wait(submission)
            raise
        return [
            make_job_return(EXIT_DONE if folder.read_end_time() >= submission.submitted else EXIT_FAILED)
            for folder in folders
        ]

    def _submit(self, runs: list[tuple[Config, str]], folder: Path) -> jobs.Submission:
        """Submit the runs (config and key of each) as jobs that log to ``folder``."""
        raise NotImplementedError

    def _handle_interrupted_wait(self, submission: jobs.Submission) -> None:
        """Stop the jobs, or say that they go on, when the wait for them is interrupted."""


class LocalProcessesLauncher(SubmititLauncher):
    """Processes on this machine, among which the runs are divided (``hydra/launcher=local``)."""

    name = "local"
    held_signals = (signal.SIGINT, signal.SIGHUP)  # this process tells the others when to stop

    def __init__(self, wait: bool, processes: PositiveInt) -> None:
        check_values("hydra.launcher", locals(), read_hints(LocalProcessesLauncher.__init__))
        self.wait, self.processes = wait, processes

    def _submit(self, runs: list[tuple[Config, str]], folder: Path) -> jobs.Submission:
        from submitit import LocalExecutor

        from isobench.sweep.worker import Worker

        count = min(self.processes, len(runs))
        threads = max(1, (os.cpu_count() or 1) // count) if "OMP_NUM_THREADS" not in os.environ else None
        parent = os.getpid() if self.wait else None  # without a wait, the processes go on after this one
        executor = LocalExecutor(folder)
        executor.update_parameters(timeout_min=60 * 24 * 365)
        share = math.ceil(len(runs) / count)
        started = [executor.submit(Worker(runs, index * share, share, threads, parent)) for index in range(count)]
        folders = [run_folder_name(key) for _, key in runs]
        return jobs.Submission(self.name, started[0].job_id, {job.job_id: folders for job in started}, time.time())

    def _handle_interrupted_wait(self, submission: jobs.Submission) -> None:
        for job in submission.runs:
            if jobs.is_local_job_alive(job):
                os.kill(int(job), signal.SIGTERM)  # the process saves, then ends
        deadline = time.monotonic() + SAVE_TIMEOUT
        while time.monotonic() < deadline and any(jobs.is_local_job_alive(job) for job in submission.runs):
            time.sleep(0.2)


class SlurmArrayLauncher(SubmititLauncher):
    """A SLURM job array (``hydra/launcher=slurm``); conf/hydra/launcher/slurm.yaml explains each setting."""

    name = "slurm"

    def __init__(
        self,
        wait: bool,
        runs_per_job: PositiveInt,
        runs_at_once: PositiveInt,
        time: PositiveInt,
        gpus: NonNegativeInt | None,
        cpus: PositiveInt,
        memory_gb: PositiveFloat | None,
        max_jobs: PositiveInt,
        setup: list[str],
        extra: list[Annotated[str, SBATCH_OPTION]],
        signal_seconds: PositiveInt,
        max_timeouts: PositiveInt,
        **options: Any,
    ) -> None:
        check_values("hydra.launcher", locals(), read_hints(SlurmArrayLauncher.__init__))
        self.wait, self.runs_per_job, self.max_timeouts = wait, max(runs_per_job, runs_at_once), max_timeouts
        self.parameters = {
            "job_name": "isobench",
            "time": time,
            "ntasks_per_node": runs_at_once,
            "gpus_per_node": gpus or None,
            "cpus_per_task": cpus,
            "mem": None if memory_gb is None else f"{round(memory_gb * 1024)}MB",
            "array_parallelism": max_jobs,
            "setup": list(setup),
            "signal_delay_s": signal_seconds,
            "additional_parameters": {"requeue": True, **dict(option.split("=", 1) for option in extra)},
            **options,
        }

    def _submit(self, runs: list[tuple[Config, str]], folder: Path) -> jobs.Submission:
        from submitit import SlurmExecutor

        from isobench.sweep.worker import Worker

        if SlurmExecutor.affinity() < 0:
            raise UserError("hydra/launcher=slurm: there is no srun here; submit from a machine of the cluster")
        executor = SlurmExecutor(folder, max_num_timeout=self.max_timeouts)
        executor.update_parameters(**{name: value for name, value in self.parameters.items() if value is not None})
        chunks = [runs[start : start + self.runs_per_job] for start in range(0, len(runs), self.runs_per_job)]
        folders_by_job: dict[str, list[str]] = {}
        limit = jobs.read_slurm_array_limit()
        for start in range(0, len(chunks), limit):
            with contextlib.redirect_stderr(io.StringIO()), executor.batch():  # the error holds what sbatch prints
                started = [executor.submit(Worker(chunk)) for chunk in chunks[start : start + limit]]
            for job, chunk in zip(started, chunks[start : start + limit], strict=True):
                folders_by_job[job.job_id] = [run_folder_name(key) for _, key in chunk]
        arrays = dict.fromkeys(job.split("_")[0] for job in folders_by_job)
        return jobs.Submission(self.name, ",".join(arrays), folders_by_job, time.time())

    def _handle_interrupted_wait(self, submission: jobs.Submission) -> None:
        print(
            f"isobench: job {submission.job} goes on; scancel {submission.job.replace(',', ' ')} ends it",
            file=sys.stderr,
        )


def explain_refusal(error: Exception) -> str:
    """Explain in one line why a scheduler took no jobs: by its fatal error if it has one, else by its first line."""
    fatal = [line.strip() for line in str(error).splitlines() if "fatal:" in line]
    if not fatal:
        return extract_first_line(error)
    return f"SLURM does not answer here ({fatal[-1]}): submit from a machine of the cluster where sinfo works"


def remove_submission_folder(folder: Path) -> None:
    """Remove the folder of a submission that failed, and the folder of submissions if it is empty then."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def make_job_return(code: int) -> JobReturn:
    """Return what Hydra expects from a launcher for a run, with the run's exit code as its value."""
    result = JobReturn(status=JobStatus.COMPLETED)
    result.return_value = code
    return result
