"""Carry out runs on SLURM: an array of jobs, each of which is a worker of the same plan (``isobench work``).

A job's script asks SLURM to queue the job again when a signal has stopped its workers, which have saved by then. The
job that comes back is a worker as before, and needs to know nothing of its past.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from isobench.common import environment
from isobench.common.errors import UserError, refuse
from isobench.common.files import require_writable
from isobench.common.interruption import Interrupted, handle_signals, raise_if_noted, raise_interrupted
from isobench.common.terminal import format_count
from isobench.config.bounds import Bound, NonNegativeInt, PositiveFloat, PositiveInt, check_values, read_hints
from isobench.config.command_line import drop_launch_arguments
from isobench.runs.folder import jobs_folder
from isobench.runs.run import Run
from isobench.runs.state import Submission, list_slurm_arrays
from isobench.sweep.forecast import Forecast, format_duration
from isobench.sweep.launchers import Launcher
from isobench.sweep.worker import format_work_command
from isobench.training.execute import EXIT_FAILED

SBATCH_OPTION = Bound(lambda option: "=" in option, "must be an sbatch option with its value: NAME=VALUE")
PLAN_FILE, SCRIPT_FILE = "plan.json", "job.sh"  # in a folder of jobs/
NO_SRUN = "there is no srun here: submit from a machine of the cluster"
SCRIPT = """\
#!/bin/bash
{options}
export {job}=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID {share}=${{SLURM_NTASKS:-1}}
export {log}={folder}/${job}.log
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
{setup}
srun --unbuffered {command}
code=$?
# {stopped}: a signal has stopped the workers. A job that was cancelled is not running any more.
if [[ " {stopped} " == *" $code "* && ${{SLURM_RESTART_COUNT:-0}} -lt {max_timeouts} ]] &&
    scontrol show job -o $SLURM_JOB_ID | grep -q JobState=RUNNING; then
    scontrol requeue $SLURM_JOB_ID
fi
exit $code
"""


class SlurmLauncher(Launcher):
    """A SLURM job array (``hydra/launcher=slurm``); conf/hydra/launcher/slurm.yaml explains each setting."""

    is_local = False

    def __init__(
        self,
        wait: bool,
        workers: PositiveInt,
        time: PositiveInt,
        partition: str | None,
        account: str | None,
        qos: str | None,
        constraint: str | None,
        gpus: NonNegativeInt | None,
        cpus: PositiveInt,
        memory_gb: PositiveFloat | None,
        setup: list[str],
        extra: list[Annotated[str, SBATCH_OPTION]],
        signal_seconds: PositiveInt,
        max_timeouts: NonNegativeInt,
    ) -> None:
        check_values("hydra.launcher", locals(), read_hints(SlurmLauncher.__init__))
        self.wait, self.setup, self.max_timeouts = wait, setup, max_timeouts
        self.most_jobs, self.minutes = workers, time
        options = {
            "job-name": "isobench", "time": time, "partition": partition, "account": account, "qos": qos,
            "constraint": constraint, "gpus-per-node": gpus or None, "cpus-per-task": cpus, "nodes": 1,
            "mem": None if memory_gb is None else f"{round(memory_gb * 1024)}M", "signal": f"USR2@{signal_seconds}",
            "requeue": "", "open-mode": "append", **dict(option.split("=", 1) for option in extra),
        }  # fmt: skip
        self.options = {name: value for name, value in options.items() if value is not None}

    def describe(self, todo: Sequence[Run], runs: Sequence[Run]) -> str:
        """See `Launcher.describe`: how many jobs, and about how long they are at work."""
        forecast, jobs = Forecast(list(runs)), self._count_jobs(todo)
        seconds = [forecast.estimate_seconds(run.cfg) for run in todo]
        known = [need for need in seconds if need is not None]
        needs = f"about {format_duration(sum(known) / jobs)}" if len(known) == len(todo) else "a time not known yet"
        shown = ("partition", "gpus-per-node", "cpus-per-task", "mem", "time", "ntasks")
        asks = ", ".join(f"{name}={self.options[name]}" for name in shown if name in self.options)
        text = (
            f"SLURM: {format_count(jobs, 'job')} of {asks}; each needs {needs} for its share of the runs; one that "
            f"doesn't end in {self.minutes} min is queued again"
        )
        return text if shutil.which("srun") else f"{text}; {NO_SRUN}"

    def _count_jobs(self, todo: Sequence[Run]) -> int:
        workers = int(self.options.get("ntasks", 1))  # of a job
        return min(self.most_jobs, -(-len(todo) // workers), read_array_limit())

    def launch(self, todo: list[Run], runs: Sequence[Run], plan: Path) -> list[int]:
        """See `Launcher.launch`. The jobs work on a copy of the plan, which later commands don't change."""
        output_dir, submitted = todo[0].cfg.output_dir, time.time()  # before the first run can end
        refuse((not shutil.which("srun"), f"hydra/launcher=slurm: {NO_SRUN}"))
        folder = jobs_folder(output_dir) / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        with require_writable(folder):  # removed again if nothing is submitted
            job = self._submit(plan, folder.absolute(), todo, submitted)
        Submission(job, [run.folder.path.name for run in todo], submitted).save(output_dir)
        here = f"{format_count(len(todo), 'run')} in slurm job {job}, logs in {folder}"
        if not self.wait:
            typed = drop_launch_arguments(environment.read_arguments())
            again = shlex.join(["isobench", "status", *environment.format_paper_flags(), *typed])
            self.submitted_message = f"Submitted {here}.\nHow it goes: {again}"
            return []
        print(f"Waiting for {here}", file=sys.stderr, flush=True)
        try:
            with handle_signals(raise_interrupted, signal.SIGTERM):
                return _wait_for_runs(todo, job, submitted)
        except (KeyboardInterrupt, Interrupted):
            print(f"isobench: job {job} goes on; scancel {job} ends it", file=sys.stderr)
            raise

    def _submit(self, plan: Path, folder: Path, todo: Sequence[Run], since: float) -> str:
        """Submit the jobs that work on a plan, of which ``folder`` gets a copy, and return the array's id."""
        options = self.options | {"array": f"0-{self._count_jobs(todo) - 1}", "output": f"{folder}/%A_%a.log"}
        script = SCRIPT.format(
            options="\n".join(f"#SBATCH --{name}={value}".rstrip("=") for name, value in options.items()),
            folder=shlex.quote(str(folder)),
            setup="\n".join(self.setup),
            command=shlex.join(format_work_command(folder / PLAN_FILE, todo, since)),
            stopped=" ".join(str(128 + signum) for signum in (signal.SIGUSR2, signal.SIGTERM)),
            max_timeouts=self.max_timeouts,
            job=environment.JOB,
            share=environment.DEVICE_SHARE,
            log=environment.LOG,
        )
        shutil.copy(plan, folder / PLAN_FILE)
        (folder / SCRIPT_FILE).write_text(script)
        command = ["sbatch", "--parsable", str(folder / SCRIPT_FILE)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            shutil.rmtree(folder)
            lines = answer.stderr.strip().splitlines() or ["sbatch failed"]
            raise UserError(f"hydra/launcher=slurm: {lines[-1]}")
        return answer.stdout.strip().partition(";")[0]  # behind it is the cluster's name, where there are several


def read_array_limit() -> int:
    """Read how many jobs SLURM takes in one array; SLURM's default, 1000, where it does not say."""
    size = None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["scontrol", "show", "config"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        size = re.search(r"MaxArraySize\s*=\s*(\d+)", answer.stdout)
    return max(1, int(size[1]) - 1) if size else 1000  # the largest index, from 0, is below the size


def _wait_for_runs(todo: Sequence[Run], job: str, submitted: float) -> list[int]:
    """Wait until every run has its record, or the job was not there twice in a row; return the exit codes.

    The records come first, since a scheduler without accounting never reports that a cancelled job is over.
    """
    times_without_job, printed_count = 0, 0
    while left := [run for run in todo if run.folder.read_end_time() < submitted]:
        raise_if_noted()
        if times_without_job == 2:
            return [EXIT_FAILED]
        if len(todo) - len(left) != printed_count:
            printed_count = len(todo) - len(left)
            print(f"{printed_count} of {len(todo)} runs have ended", file=sys.stderr, flush=True)
        time.sleep(2)
        with contextlib.suppress(UserError):  # a scheduler that doesn't answer still has its jobs
            times_without_job = 0 if job in list_slurm_arrays() else times_without_job + 1
    return []
