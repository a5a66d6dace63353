"""What carries out the runs of a sweep: this process, or several of this machine (slurm.py: a cluster)."""

import contextlib
import os
from collections.abc import Iterator, Sequence

from hydra.utils import get_class, instantiate
from omegaconf import DictConfig

from isobench.common.errors import UserError, extract_first_line
from isobench.config.bounds import PositiveInt, check_values, read_hints
from isobench.config.schema import Config
from isobench.runs.run import Run
from isobench.sweep.forecast import MemoryForecast
from isobench.sweep.pool import Division, Pool
from isobench.training.execute import execute_run


class Launcher:
    """Carries out one run after another in this process (``hydra/launcher=sequential``); other launchers inherit."""

    is_local = True  # runs are carried out on this machine
    submitted_message: str | None = None  # for the user, after a launch that did not wait

    def describe(self, todo: Sequence[Run], runs: Sequence[Run]) -> str:
        """Describe for a dry run how the runs ``todo`` of a sweep's ``runs`` would be launched."""
        return ""

    def launch(self, todo: list[Run], runs: Sequence[Run]) -> list[int]:
        """Carry out the runs ``todo`` of a sweep's ``runs``; return their exit codes, none if it does not wait.

        A run that fails does not stop the others; a disk that can't be written to does.
        """
        positions = [f"[{position}/{len(todo)}] " if len(runs) > 1 else "" for position in range(1, len(todo) + 1)]
        return [execute_run(run.cfg, position)[0] for run, position in zip(todo, positions, strict=True)]


class AutomaticLauncher(Launcher):
    """Carries out as many runs at the same time as the machine has room for (``hydra/launcher=auto``).

    With GPUs that is one run for each GPU; without, one run of one thread for each core, unless memory allows fewer.
    If there is room for only one, runs are carried out in this process, as by ``hydra/launcher=sequential``.

    Args:
        processes: the user's number of processes. It is kept regardless of memory, even after a process was killed
            for lack of memory. With null, cores and memory decide.
    """

    def __init__(self, processes: PositiveInt | None) -> None:
        check_values("hydra.launcher", locals(), read_hints(AutomaticLauncher.__init__))
        self.processes = processes

    def launch(self, todo: list[Run], runs: Sequence[Run]) -> list[int]:
        division = divide_machine([run.cfg for run in todo], len(runs), self.processes)
        if division.processes == 1:
            with _use_threads(division.threads):
                return super().launch(todo, runs)
        memory = None
        if self.processes is None:
            memory = MemoryForecast()
            memory.add_finished(runs, with_gpu=bool(division.gpus))
        return Pool(division, memory).carry_out(todo)


@contextlib.contextmanager
def _use_threads(count: int | None) -> Iterator[None]:
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


def divide_machine(configs: list[Config], planned: int, processes: int | None = None) -> Division:
    """Divide the machine among a sweep's runs: a process for each GPU (Apple's counts as one), or else for each core.

    There are never more processes than runs to carry out. Each process has one thread. A
    sweep of fewer runs than there are cores divides the cores among them, and a user who sets ``trainer.threads`` or
    OMP_NUM_THREADS has chosen how many cores a run takes. The number of threads does not depend on how many runs are
    left, so that a sweep that goes on computes with as many as before.

    Args:
        configs: the runs that are to be carried out.
        planned: how many runs the whole sweep has, the finished ones included.
        processes: the user's choice of a number of processes; None leaves it to this function.
    """
    wanted = {cfg.trainer.accelerator for cfg in configs}
    gpus = list_gpus() if wanted & {"auto", "gpu"} else []
    cores, runs = _count_cores(), len(configs)
    if gpus or (wanted & {"auto", "gpu", "mps"} and has_apple_gpu()):
        count = processes or max(1, len(gpus))
        return Division(min(count, runs), None if count == 1 else max(1, cores // count), tuple(gpus))
    chosen = max((cfg.trainer.threads or 0 for cfg in configs), default=0) or _read_thread_setting()
    threads = chosen or max(1, cores // (processes or planned))
    count = processes or max(1, cores // threads)
    return Division(min(count, runs), threads if count > 1 else None)


def _count_cores() -> int:
    """Count the physical cores that this process may use, by its affinity and by the limits of its container."""
    from joblib.externals.loky import cpu_count

    return max(1, int(cpu_count(only_physical_cores=True)))


def _read_thread_setting() -> int:
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() else 0


def list_gpus() -> list[str]:
    """List the GPUs that torch sees, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names.split(",")[:count] if names and count else [str(index) for index in range(count)]


def has_apple_gpu() -> bool:
    import torch

    return bool(torch.backends.mps.is_available())


def make_launcher(hydra: DictConfig) -> Launcher:
    name = f"hydra/launcher={hydra.runtime.choices.get('hydra/launcher')}"
    try:
        chosen = get_class(hydra.launcher._target_)
    except Exception as error:  # importing a module may raise anything
        raise UserError(f"{name}: {hydra.launcher._target_}: {extract_first_line(error)}") from error
    if not issubclass(chosen, Launcher):
        own = f"{Launcher.__module__}.{Launcher.__name__}"
        raise UserError(f"{name} can't carry out runs: choose auto, sequential, slurm or a subclass of {own}")
    launcher: Launcher = instantiate(hydra.launcher, _convert_="all")
    return launcher
