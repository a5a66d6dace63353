"""Launchers: in this process, in worker processes of this machine, and in SLURM job arrays through submitit."""

import contextlib
import io
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from hydra.utils import instantiate
from omegaconf import DictConfig

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import is_storage_error, make_storage_error
from isobench.common.interruption import Interrupted, handle_signals, raise_interrupted
from isobench.config.bounds import (
    Bound,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check_values,
    read_hints,
)
from isobench.config.command_line import drop_launch_arguments
from isobench.runs import jobs
from isobench.runs.layout import jobs_folder
from isobench.runs.run import Run
from isobench.sweep.capacity import MemoryNeeds, divide_machine
from isobench.sweep.pool import Pool
from isobench.training.execute import EXIT_DONE, EXIT_FAILED, execute_run

SBATCH_OPTION = Bound(lambda option: "=" in option, "must be an sbatch option with its value: NAME=VALUE")


class InProcessLauncher:
    """Carries out one run after another in this process (``hydra/launcher=sequential``)."""

    submitted_message: str | None = None  # for the user, after a launch that did not wait

    def launch(self, todo: list[Run], rows: Sequence[Run]) -> list[int]:
        """Carry out runs and return their exit codes, none if it does not wait for them.

        A run that fails does not stop the others; a disk that can't be written to does.

        Args:
            todo: the runs to carry out.
            rows: all runs of the sweep, the finished ones included.
        """
        return [execute_run(row.cfg, f"[{number}/{len(todo)}] ")[0] for number, row in enumerate(todo, 1)]


class AutomaticLauncher(InProcessLauncher):
    """Carries out as many runs at the same time as the machine has room for (``hydra/launcher=auto``).

    With GPUs that is one run for each GPU. Without GPUs it is one run of one thread for each core, unless memory
    allows fewer. If there is room for only one, runs are carried out in this process, as by
    ``hydra/launcher=sequential``.

    Args:
        processes: the number of processes if the user sets it. It is kept regardless of memory, even after a process
            was killed for lack of memory. With null, cores and memory decide.
    """

    def __init__(self, processes: PositiveInt | None) -> None:
        check_values("hydra.launcher", locals(), read_hints(AutomaticLauncher.__init__))
        self.processes = processes

    def launch(self, todo: list[Run], rows: Sequence[Run]) -> list[int]:
        """See `InProcessLauncher.launch`."""
        division = divide_machine([row.cfg for row in todo], len(rows), self.processes)
        if division.processes == 1:
            with _use_threads(division.threads):
                return super().launch(todo, rows)
        memory = None
        if self.processes is None:
            memory = MemoryNeeds()
            memory.add_finished(rows, with_gpu=bool(division.gpus))
        return Pool(division, memory).carry_out(todo)


@contextlib.contextmanager
def _use_threads(count: int | None) -> Iterator[None]:
    """A context in which torch computes with so many threads; None leaves them as they are."""
    if count is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SlurmLauncher:
    """A SLURM job array (``hydra/launcher=slurm``); conf/hydra/launcher/slurm.yaml explains each setting."""

    submitted_message: str | None = None

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

    def launch(self, todo: list[Run], rows: Sequence[Run]) -> list[int]:
        """See `InProcessLauncher.launch`.

        Raises:
            UserError: SLURM refuses the jobs, or can't be reached.
            StorageError: the output folder can't be written.
        """
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
            again = shlex.join(["isobench", "status", *drop_launch_arguments(sys.argv[1:])])
            self.submitted_message = f"Submitted {here}.\nHow it goes: {again}"
            return []
        print(f"Waiting for {here}", file=sys.stderr, flush=True)
        folders = [row.folder for row in todo]
        try:
            with handle_signals(raise_interrupted, signal.SIGTERM):
                jobs.wait_for_runs(output_dir, submission, folders)
        except (KeyboardInterrupt, Interrupted):
            advice = f"job {submission.job} goes on; scancel {submission.job.replace(',', ' ')} ends it"
            print(f"isobench: {advice}", file=sys.stderr)
            raise
        return [EXIT_DONE if run.read_end_time() >= submission.submitted else EXIT_FAILED for run in folders]

    def _submit(self, todo: list[Run], folder: Path) -> jobs.Submission:
        """Submit the runs as jobs that log to ``folder``."""
        from submitit import SlurmExecutor

        from isobench.sweep.worker import Worker

        if SlurmExecutor.affinity() < 0:
            raise UserError("hydra/launcher=slurm: there is no srun here; submit from a machine of the cluster")
        executor = SlurmExecutor(folder, max_num_timeout=self.max_timeouts)
        executor.update_parameters(**{name: value for name, value in self.parameters.items() if value is not None})
        shares = [todo[start : start + self.runs_per_job] for start in range(0, len(todo), self.runs_per_job)]
        folders_by_job: dict[str, list[str]] = {}
        limit = jobs.read_slurm_array_limit()
        for start in range(0, len(shares), limit):
            several = shares[start : start + limit]
            with contextlib.redirect_stderr(io.StringIO()), executor.batch():  # the error holds what sbatch prints
                started = [executor.submit(Worker([(row.cfg, row.folder.key) for row in share])) for share in several]
            for job, share in zip(started, several, strict=True):
                folders_by_job[job.job_id] = [row.folder.path.name for row in share]
        arrays = dict.fromkeys(job.split("_")[0] for job in folders_by_job)
        return jobs.Submission(",".join(arrays), folders_by_job, time.time())


def explain_refusal(error: Exception) -> str:
    """Explain in one line why a scheduler took no jobs: by its fatal error if it has one, else by its first line."""
    fatal = [line.strip() for line in str(error).splitlines() if "fatal:" in line]
    if not fatal:
        return extract_first_line(error)
    return f"SLURM does not answer here ({fatal[-1]}): submit from a machine of the cluster where sinfo works"


def make_launcher(hydra: DictConfig) -> InProcessLauncher | SlurmLauncher:
    """Make the launcher that ``hydra/launcher`` chooses.

    Raises:
        UserError: it is none of isobench's, or a setting of it is out of its bounds.
    """
    if not str(hydra.launcher._target_).startswith(f"{__name__}."):
        name = hydra.runtime.choices.get("hydra/launcher")
        raise UserError(f"hydra/launcher={name} can't carry out runs: choose auto, sequential or slurm")
    launcher: InProcessLauncher | SlurmLauncher = instantiate(hydra.launcher, _convert_="all")
    return launcher
