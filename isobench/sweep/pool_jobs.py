"""Hold what a pool of worker processes keeps: the runs that it has to carry out, and its workers."""

from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import psutil

from isobench.config.schema import Config
from isobench.runs.folder import RunFolder


@dataclass
class PlannedJob:
    """A run to carry out, and what has happened to it.

    Args:
        index: its place among the sweep's runs, from 0.
        cfg: its config.
        folder: its folder.
        position: its place, as its outcome's line shows it.
        kills: how many of its processes were killed.
        had_company: whether others ran at the same time as its last process.
    """

    index: int
    cfg: Config
    folder: RunFolder
    position: str
    kills: int = 0
    had_company: bool = False


@dataclass
class WorkerProcess:
    """A worker: its process, the pipe to it, its number, its run if it has one, and whether it was told to end."""

    process: SpawnProcess
    pipe: Connection
    slot: int
    job: PlannedJob | None = None
    is_ending: bool = False

    def measure_memory(self) -> float:
        """Return the bytes of memory that the process holds; 0 if it is gone."""
        try:
            return float(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.Error:
            return 0.0
