"""Launch the runs of a sweep: in this process, or by workers of this machine (slurm.py: of a cluster)."""

from collections.abc import Sequence
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from isobench.common.environment import keep_threads, read_command_start
from isobench.config.bounds import PositiveInt, check_values, read_hints
from isobench.config.classes import locate_class
from isobench.runs.run import Run
from isobench.sweep.forecast import forecast_memory
from isobench.sweep.machine import divide_machine, limit_by_memory
from isobench.sweep.worker import format_work_command, work
from isobench.sweep.workers import Workers


class Launcher:
    """Carries out a sweep's runs on this machine; a launcher for another place inherits.

    Each GPU, or without one each core, has a worker, unless memory allows fewer. If there is room for one only, this
    process is the worker.

    Args:
        workers: how many there are; memory then doesn't matter. With null, GPUs, cores and memory decide.
    """

    is_local = True
    workers: int | None = None
    submitted_message: str | None = None  # for the user, after a launch that did not wait

    def __init__(self, workers: PositiveInt | None) -> None:
        check_values("hydra.launcher", locals(), read_hints(Launcher.__init__))
        self.workers = workers

    def describe(self, todo: Sequence[Run], runs: Sequence[Run]) -> str:
        """Describe for a dry run how the runs ``todo`` of a sweep's ``runs`` would be launched."""
        return ""

    def launch(self, todo: list[Run], runs: Sequence[Run], plan: Path) -> list[int]:
        """Carry out the runs ``todo`` of a sweep's ``runs``; return exit codes, none if it does not wait.

        A run that fails does not stop the others; a disk that can't be written to does. ``plan`` is the sweep's file.
        """
        configs = [run.cfg for run in todo]
        division = divide_machine(configs, len(runs), self.workers)
        if division.workers > 1 and self.workers is None:
            division = limit_by_memory(division, forecast_memory(configs, runs, with_gpu=bool(division.gpus)))
        since = read_command_start()
        if division.workers == 1:
            with keep_threads(division.threads):
                return [work(todo, since, is_numbered=len(runs) > 1)]
        return Workers(format_work_command(plan, todo, since), division).carry_out(todo, since)


def make_launcher(hydra: DictConfig) -> Launcher:
    locate_class(hydra.launcher._target_, Launcher)
    launcher: Launcher = instantiate(hydra.launcher, _convert_="all")
    return launcher
