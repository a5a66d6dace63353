"""Carry out runs on SLURM, through submitit: submit job arrays; in a job, save and requeue when a signal stops it."""

import contextlib
import io
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from submitit import JobEnvironment
from submitit.helpers import DelayedSubmission

from isobench.common import environment
from isobench.common.errors import StorageError, UserError, extract_first_line
from isobench.common.files import is_storage_error, make_storage_error
from isobench.common.interruption import STOP_SIGNALS, Interrupted, handle_signals, raise_if_noted, raise_interrupted
from isobench.common.terminal import format_count
from isobench.config.bounds import Bound, NonNegativeInt, PositiveFloat, PositiveInt, check_values, read_hints
from isobench.config.command_line import drop_launch_arguments
from isobench.config.explain import print_error
from isobench.config.schema import Config
from isobench.runs.folder import RunFolder, jobs_folder, run_folder_name
from isobench.runs.run import Run, format_run_name
from isobench.runs.state import Submission, find_queued_jobs, find_run_state, read_live_heartbeat, wait_for_beat
from isobench.sweep.forecast import Forecast, format_duration
from isobench.sweep.launchers import Launcher
from isobench.training.execute import EXIT_BUSY, EXIT_DONE, EXIT_FAILED, EXIT_USER_ERROR, execute_run

SBATCH_OPTION = Bound(lambda option: "=" in option, "must be an sbatch option with its value: NAME=VALUE")
NO_SRUN = "there is no srun here: submit from a machine of the cluster"
LOCK_TIMEOUT = 300.0  # seconds for which a file server may keep a dead machine's lock


class SlurmLauncher(Launcher):
    """A SLURM job array (``hydra/launcher=slurm``); conf/hydra/launcher/slurm.yaml explains each setting."""

    is_local = False

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
        self.runs_at_once = runs_at_once
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

    def describe(self, todo: Sequence[Run], runs: Sequence[Run]) -> str:
        """See `Launcher.describe`: how many jobs, and whether the longest fits in the time limit."""
        jobs, forecast = self._divide(todo), Forecast(list(runs))
        arrays = math.ceil(len(jobs) / _read_array_limit())
        seconds = [[forecast.estimate_seconds(run.cfg) for run in job] for job in jobs]
        needs = [sum(filter(None, job)) / self.runs_at_once for job in seconds if None not in job]
        is_known = len(needs) == len(jobs)
        longest = f"about {format_duration(max(needs))}" if is_known else "a time that is not known yet"
        at_once = min(len(jobs), self.parameters["array_parallelism"])
        text = (
            f"SLURM: {format_count(len(jobs), 'job')} in {format_count(arrays, 'array')}, {at_once} "
            f"{'of each array ' * (arrays > 1)}at a time; "
            f"the longest needs {longest}; one that does not end in {self.parameters['time']} min is queued again"
        )
        return text if shutil.which("srun") else f"{text}; {NO_SRUN}"

    def _divide(self, todo: Sequence[Run]) -> list[Sequence[Run]]:
        return [todo[start : start + self.runs_per_job] for start in range(0, len(todo), self.runs_per_job)]

    def launch(self, todo: list[Run], runs: Sequence[Run]) -> list[int]:
        output_dir = todo[0].cfg.output_dir
        folder = jobs_folder(output_dir) / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        submissions: list[Submission] = []
        try:
            for submission in self._submit(todo, folder.absolute()):
                submissions.append(submission)
                submission.save(output_dir)
        except Exception as error:  # submitit and the scheduler raise many kinds
            raise _make_refusal(error, folder, submissions, len(todo)) from error
        job_ids = ",".join(submission.job for submission in submissions)
        here = f"{len(todo)} runs in slurm job {job_ids}, logs in {folder}"
        if not self.wait:
            again = shlex.join(
                ["isobench", "status", *environment.format_paper_flags(), *drop_launch_arguments(sys.argv[1:])]
            )
            self.submitted_message = f"Submitted {here}.\nHow it goes: {again}"
            return []
        print(f"Waiting for {here}", file=sys.stderr, flush=True)
        try:
            with handle_signals(raise_interrupted, signal.SIGTERM):
                return _wait_for_runs(output_dir, submissions, [run.folder for run in todo])
        except (KeyboardInterrupt, Interrupted):
            advice = f"job {job_ids} goes on; scancel {job_ids.replace(',', ' ')} ends it"
            print(f"isobench: {advice}", file=sys.stderr)
            raise

    def _submit(self, todo: list[Run], folder: Path) -> Iterator[Submission]:
        """Submit the runs in as many job arrays as SLURM's limit asks for, and yield each array once it is queued."""
        from submitit import SlurmExecutor

        if not shutil.which("srun"):
            raise UserError(f"hydra/launcher=slurm: {NO_SRUN}")
        executor = SlurmExecutor(folder, max_num_timeout=self.max_timeouts)
        executor.update_parameters(**{name: value for name, value in self.parameters.items() if value is not None})
        shares = self._divide(todo)
        limit = _read_array_limit()
        for start in range(0, len(shares), limit):
            began = time.time()  # before the array's first run can end
            workers = [
                Worker([(run.cfg, run.folder.key) for run in share]) for share in shares[start : start + limit]
            ]
            with contextlib.redirect_stderr(io.StringIO()), executor.batch():  # the error holds what sbatch prints
                jobs = [executor.submit(worker) for worker in workers]
            folders_by_job = {
                job.job_id: [run_folder_name(key) for _, key in worker.runs]
                for job, worker in zip(jobs, workers, strict=True)
            }
            yield Submission(jobs[0].job_id.split("_")[0], folders_by_job, began)


def _make_refusal(error: Exception, folder: Path, submissions: list[Submission], count: int) -> UserError:
    """Make the error for a launch of ``count`` runs that failed; arrays that are queued already stay as they are."""
    if isinstance(error, UserError):
        refusal = error
    elif is_storage_error(error):
        refusal = make_storage_error(error, folder)  # type: ignore[arg-type]
    else:
        refusal = UserError(f"hydra/launcher=slurm: {explain_refusal(error)}")
    if submissions:
        queued = sum(len(names) for submission in submissions for names in submission.runs.values())
        job_ids = ",".join(submission.job for submission in submissions)
        return UserError(
            f"{queued} of {count} runs are submitted, in slurm job {job_ids}; repeat the command later, which "
            f"submits only the others ({refusal})"
        )
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
    return refusal


def _read_array_limit() -> int:
    """Read how many jobs SLURM takes in one array; SLURM's default, 1000, where it does not say."""
    command = ["scontrol", "show", "config"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return max(1, int(re.search(r"MaxArraySize\s*=\s*(\d+)", answer.stdout)[1]) - 1)  # type: ignore[index]
    except (OSError, subprocess.SubprocessError, TypeError):
        return 1000


def _wait_for_runs(output_dir: str, submissions: list[Submission], folders: list[RunFolder]) -> list[int]:
    """Wait until every run has its record, or none of the jobs was there twice in a row; return the exit codes.

    The records come first, since a scheduler without accounting never reports that a cancelled job is over. Whenever
    runs have ended, their number is printed.
    """
    began = submissions[0].submitted
    times_without_jobs, printed_count = 0, 0
    while True:
        raise_if_noted()
        have_ended = [folder.read_end_time() >= began for folder in folders]
        if sum(have_ended) != printed_count:
            printed_count = sum(have_ended)
            print(f"{printed_count} of {len(folders)} runs have ended", file=sys.stderr, flush=True)
        if all(have_ended) or times_without_jobs == 2:
            return [EXIT_DONE if has_ended else EXIT_FAILED for has_ended in have_ended]
        time.sleep(2)
        with contextlib.suppress(UserError):  # a scheduler that doesn't answer still has its jobs
            are_there = any(queued in submissions for queued in find_queued_jobs(output_dir).values())
            times_without_jobs = 0 if are_there else times_without_jobs + 1


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
        os.environ.update({environment.JOB: job.job_id, environment.LOG: str(job.paths.stderr)})
        if job.num_tasks > 1:
            os.environ[environment.DEVICE_SHARE] = str(job.num_tasks)
        if threads := os.environ.get("SLURM_CPUS_PER_TASK"):
            os.environ["OMP_NUM_THREADS"] = threads

    def _execute_share(self, rank: int, share: int) -> list[int]:
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
        code = execute_run(run.cfg, since=self.created, key=run.folder.key)[0]
        deadline = time.monotonic() + LOCK_TIMEOUT
        while code == EXIT_BUSY and is_patient and time.monotonic() < deadline and not wait_for_beat(run.folder.path):
            code = execute_run(run.cfg, since=self.created, key=run.folder.key)[0]
        return code

    def _wait_for_others(self) -> None:
        """Wait until the job's other processes have ended: only the first can requeue the job, so it must not end."""
        folders = [RunFolder(cfg.output_dir, key).path for cfg, key in self.runs]
        job = os.environ.get(environment.JOB)
        while any((beat := read_live_heartbeat(folder)) and beat.job == job for folder in folders):
            time.sleep(2)


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
