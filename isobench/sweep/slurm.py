"""Carry out runs on SLURM, through submitit: submit job arrays; in a job, save and requeue when a signal stops it."""

import contextlib
import io
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from submitit import JobEnvironment
from submitit.helpers import DelayedSubmission

from isobench.common import environment
from isobench.common.errors import StorageError, UserError, extract_first_line
from isobench.common.files import is_storage_error, make_storage_error
from isobench.common.interruption import STOP_SIGNALS, Interrupted, handle_signals, raise_interrupted
from isobench.config.bounds import Bound, NonNegativeInt, PositiveFloat, PositiveInt, check_values, read_hints
from isobench.config.command_line import drop_launch_arguments
from isobench.config.explain import print_error
from isobench.config.schema import Config
from isobench.runs.folder import RunFolder, jobs_folder
from isobench.runs.identity import identify
from isobench.runs.run import Run, format_run_name
from isobench.runs.state import (
    Submission,
    find_run_state,
    read_live_heartbeat,
    read_slurm_array_limit,
    wait_for_beat,
    wait_for_runs,
)
from isobench.sweep.launchers import Launcher
from isobench.training.execute import EXIT_BUSY, EXIT_DONE, EXIT_FAILED, EXIT_USER_ERROR, execute_run

SBATCH_OPTION = Bound(lambda option: "=" in option, "must be an sbatch option with its value: NAME=VALUE")
LOCK_TIMEOUT = 300.0  # seconds for which a file server may keep a dead machine's lock


class SlurmLauncher(Launcher):
    """A SLURM job array (``hydra/launcher=slurm``); conf/hydra/launcher/slurm.yaml explains each setting."""

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
        check_values("hydra.launcher", locals(), read_hints(SlurmLauncher.__init__))
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

    def launch(self, todo: list[Run], runs: Sequence[Run]) -> list[int]:
        """See `Launcher.launch`."""
        output_dir = todo[0].cfg.output_dir
        folder = jobs_folder(output_dir) / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        try:
            submission = self._submit(todo, folder.absolute())
            submission.save(output_dir)
        except UserError:
            raise
        except Exception as error:  # submitit and the scheduler raise many kinds
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()
            if is_storage_error(error):
                raise make_storage_error(error, folder) from error  # type: ignore[arg-type]
            raise UserError(f"hydra/launcher=slurm: {explain_refusal(error)}") from error
        here = f"{len(todo)} runs in slurm job {submission.job}, logs in {folder}"
        if not self.wait:
            again = shlex.join(
                ["isobench", "status", *environment.format_paper_flags(), *drop_launch_arguments(sys.argv[1:])]
            )
            self.submitted_message = f"Submitted {here}.\nHow it goes: {again}"
            return []
        print(f"Waiting for {here}", file=sys.stderr, flush=True)
        run_folders = [row.folder for row in todo]
        try:
            with handle_signals(raise_interrupted, signal.SIGTERM):
                wait_for_runs(output_dir, submission, run_folders)
        except (KeyboardInterrupt, Interrupted):
            advice = f"job {submission.job} goes on; scancel {submission.job.replace(',', ' ')} ends it"
            print(f"isobench: {advice}", file=sys.stderr)
            raise
        return [
            EXIT_DONE if folder.read_end_time() >= submission.submitted else EXIT_FAILED for folder in run_folders
        ]

    def _submit(self, todo: list[Run], folder: Path) -> Submission:
        from submitit import SlurmExecutor

        if SlurmExecutor.affinity() < 0:
            raise UserError("hydra/launcher=slurm: there is no srun here; submit from a machine of the cluster")
        executor = SlurmExecutor(folder, max_num_timeout=self.max_timeouts)
        executor.update_parameters(**{name: value for name, value in self.parameters.items() if value is not None})
        shares = [todo[start : start + self.runs_per_job] for start in range(0, len(todo), self.runs_per_job)]
        folders_by_job: dict[str, list[str]] = {}
        limit = read_slurm_array_limit()
        for start in range(0, len(shares), limit):
            array_shares = shares[start : start + limit]
            with contextlib.redirect_stderr(io.StringIO()), executor.batch():  # the error holds what sbatch prints
                started = [
                    executor.submit(Worker([(run.cfg, run.folder.key) for run in share])) for share in array_shares
                ]
            for job, share in zip(started, array_shares, strict=True):
                folders_by_job[job.job_id] = [run.folder.path.name for run in share]
        arrays = dict.fromkeys(job.split("_")[0] for job in folders_by_job)
        return Submission(",".join(arrays), folders_by_job, time.time())


def explain_refusal(error: Exception) -> str:
    """Explain in one line why a scheduler took no jobs: by its fatal error if it has one, else by its first line."""
    fatal = [line.strip() for line in str(error).splitlines() if "fatal:" in line]
    if not fatal:
        return extract_first_line(error)
    return f"SLURM does not answer here ({fatal[-1]}): submit from a machine of the cluster where sinfo works"


class Worker:
    """A SLURM job's runs. submitit pickles it, calls it in the job, and pickles it again when the job is requeued.

    It holds the configs themselves, so that editing a YAML after submitting does not change jobs in the queue. Where
    a job has several processes, each carries out its share of the runs, then those that no other has begun.
    """

    def __init__(self, runs: list[tuple[Config, str]]) -> None:
        self.runs = runs
        self.created = time.time()

    def __call__(self) -> list[int]:
        """Carry out the runs and return the exit codes of those that were started."""
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
        for position, (cfg, key) in enumerate([*self.runs[first:], *self.runs[:first]]):
            is_assigned = position < share
            try:
                folder = RunFolder(cfg.output_dir, key)
                # With retry_failed, a failure from before this job was created is tried again.
                run = Run(cfg, folder, folder.read_final_record(cfg.retry_failed, self.created))
                if run.record is not None or (not is_assigned and self._is_taken(run)):
                    continue
                _require_same_run(cfg, key)
                print(f"isobench: {format_run_name(cfg)}", flush=True)
                codes.append(self._execute_one(run, is_patient=is_assigned))
            except UserError as error:
                print_error(error)
                codes.append(EXIT_USER_ERROR)
                if isinstance(error, StorageError):
                    return codes
        return codes

    def checkpoint(self) -> DelayedSubmission:
        """Return the job to requeue, which is the same one: it skips finished runs. submitit calls this."""
        return DelayedSubmission(self)

    def _is_taken(self, run: Run) -> bool:
        """True if another worker is running this run, or the run killed its process after this job was created."""
        state = find_run_state(run, {})
        return state.name == "running" or (
            state.was_killed and state.beat is not None and state.beat.updated > self.created
        )

    def _execute_one(self, run: Run, is_patient: bool) -> int:
        """Carry out one run and return its exit code.

        If another process holds the run's lock, a patient worker tries again for LOCK_TIMEOUT seconds, since the
        holder may be a machine that died, unless the run's heartbeat shows that the holder is alive.
        """
        code = execute_run(run.cfg, since=self.created)[0]
        deadline = time.monotonic() + LOCK_TIMEOUT
        while code == EXIT_BUSY and is_patient and time.monotonic() < deadline and not wait_for_beat(run.folder.path):
            code = execute_run(run.cfg, since=self.created)[0]
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
    """
    handler: Any = signal.getsignal(signal.SIGUSR2)
    for stop_signal in STOP_SIGNALS:
        signal.signal(stop_signal, signal.SIG_IGN)
    if callable(handler) and (signum == signal.SIGUSR2 or (signum == signal.SIGTERM and _is_slurm_job_running(job))):
        handler(signal.SIGUSR2, None)  # ends the job's first process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(120)  # in the others: the requeue ends them
    raise SystemExit(128 + signum)


def _is_slurm_job_running(job: JobEnvironment) -> bool:
    """True if SLURM still lists the job as running: it was not cancelled and has not come to its end."""
    command = ["scontrol", "show", "job", "-o", job.job_id]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return False
    return "JobState=RUNNING" in answer.stdout
