"""What carries out the runs of a sweep: this process, or several of this machine (slurm.py: a cluster)."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from hydra.utils import instantiate
from omegaconf import DictConfig

from isobench.common.errors import UserError
from isobench.config.bounds import (
    PositiveInt,
    check_values,
    read_hints,
)
from isobench.runs.run import Run
from isobench.sweep.capacity import MemoryNeeds, divide_machine
from isobench.sweep.pool import Pool
from isobench.training.execute import execute_run


class Launcher(ABC):
    """Carries out the runs of a sweep."""

    submitted_message: str | None = None  # for the user, after a launch that did not wait

    @abstractmethod
    def launch(self, todo: list[Run], runs: Sequence[Run]) -> list[int]:
        """Carry out runs and return their exit codes, none if it does not wait for them.

        A run that fails does not stop the others; a disk that can't be written to does.

        Args:
            todo: the runs to carry out.
            runs: all runs of the sweep, the finished ones included.
        """


class InProcessLauncher(Launcher):
    """Carries out one run after another in this process (``hydra/launcher=sequential``)."""

    def launch(self, todo: list[Run], runs: Sequence[Run]) -> list[int]:
        """See `Launcher.launch`."""
        return [execute_run(run.cfg, f"[{number}/{len(todo)}] ")[0] for number, run in enumerate(todo, 1)]


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

    def launch(self, todo: list[Run], runs: Sequence[Run]) -> list[int]:
        """See `Launcher.launch`."""
        division = divide_machine([run.cfg for run in todo], len(runs), self.processes)
        if division.processes == 1:
            with _use_threads(division.threads):
                return super().launch(todo, runs)
        memory = None
        if self.processes is None:
            memory = MemoryNeeds()
            memory.add_finished(runs, with_gpu=bool(division.gpus))
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


def make_launcher(hydra: DictConfig) -> Launcher:
    """Make the launcher that ``hydra/launcher`` chooses.

    Raises:
        UserError: it is none of isobench's, or a setting of it is out of its bounds.
    """
    if not str(hydra.launcher._target_).startswith("isobench.sweep."):
        name = hydra.runtime.choices.get("hydra/launcher")
        raise UserError(f"hydra/launcher={name} can't carry out runs: choose auto, sequential or slurm")
    launcher: Launcher = instantiate(hydra.launcher, _convert_="all")
    return launcher
