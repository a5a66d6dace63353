"""Hydra's launcher ``auto``, the default one: as many runs at the same time as this machine has room for."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Annotated

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher

from isobench.common.errors import UserError
from isobench.config.bounds import Bound, PositiveInt, check_values, read_hints
from isobench.runs.folder import RunFolder
from isobench.runs.identity import identify
from isobench.runs.row import Row
from isobench.sweep.capacity import MemoryNeeds, count_cores, divide_machine
from isobench.sweep.compose import Composer
from isobench.sweep.launchers import InProcessLauncher, make_job_return
from isobench.sweep.pool import Pool
from isobench.sweep.pool_jobs import PlannedJob

NOT_ZERO = Bound(lambda count: count != 0, "must be a number of processes, or -1 for one for each core")


class AutomaticLauncher(InProcessLauncher):
    """Carries out as many runs at the same time as the machine has room for (``hydra/launcher=auto``).

    With GPUs that is one run for each GPU. Without GPUs it is one run of one thread for each core, unless memory
    allows fewer. If there is room for only one, runs are carried out in this process, as by
    ``hydra/launcher=sequential``.

    Args:
        processes: the number of processes if the user sets it. It is kept regardless of memory, even after a process
            was killed for lack of memory. With null, cores and memory decide.
    """

    rows: Sequence[Row] = ()  # all runs of the sweep, the finished ones included, where the sweeper told

    def __init__(self, processes: PositiveInt | None) -> None:
        check_values("hydra.launcher", locals(), read_hints(AutomaticLauncher.__init__))
        self.processes = processes

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Carry out the runs. A run that fails does not stop the others; a disk that can't be written to does."""
        composer = Composer(self.loader, self.config)
        configs = [composer.compose(overrides) for overrides in job_overrides]
        division = divide_machine(configs, len(self.rows) or len(configs), self.processes)
        if division.processes == 1:
            with use_threads(division.threads):
                return super().launch(job_overrides, initial_job_idx)
        memory = None
        if self.processes is None:
            memory = MemoryNeeds()
            memory.add_finished(self.rows, with_gpu=bool(division.gpus))
        jobs = [
            PlannedJob(index, cfg, RunFolder(cfg.output_dir, identify(cfg).key), f"[{index + 1}/{len(configs)}] ")
            for index, cfg in enumerate(configs, initial_job_idx)
        ]
        return [make_job_return(code) for code in Pool(division, memory).carry_out(jobs)]


@contextlib.contextmanager
def use_threads(count: int | None) -> Iterator[None]:
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


class FixedPoolLauncher(AutomaticLauncher):
    """Carries out a number of runs at the same time that the user chooses (``hydra/launcher=joblib``).

    Args:
        n_jobs: how many; counted from the number of cores if it is below 0: -1 is all cores, -2 all but one.
    """

    def __init__(self, n_jobs: Annotated[int, NOT_ZERO]) -> None:
        check_values("hydra.launcher", locals(), read_hints(FixedPoolLauncher.__init__))
        super().__init__(n_jobs if n_jobs > 0 else max(1, count_cores() + 1 + n_jobs))


def replace_joblib(launcher: Launcher) -> Launcher:
    """Return a launcher of our own in the place of Hydra's joblib launcher, and every other launcher as it is.

    joblib kills its processes on Ctrl-C, leaves them behind when its own process is killed, and loses all runs of its
    pool when one process is killed. Our worker processes save instead.

    Raises:
        UserError: a setting of joblib other than ``n_jobs`` has not its default.
    """
    if type(launcher).__name__ != "JoblibLauncher":
        return launcher
    from hydra_plugins.hydra_joblib_launcher.config import JobLibLauncherConf

    settings = dict(launcher.joblib)  # type: ignore[attr-defined]
    for default in dataclasses.fields(JobLibLauncherConf):
        value = settings.get(default.name, default.default)
        if default.name not in ("_target_", "n_jobs") and value != default.default:
            raise UserError(
                f"hydra.launcher.{default.name}={value}: isobench starts the processes itself and takes n_jobs only; "
                "leave it out"
            )
    return FixedPoolLauncher(settings["n_jobs"])
