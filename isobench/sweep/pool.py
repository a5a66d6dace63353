"""Carry out a sweep's runs at the same time, in worker processes of this machine."""

import contextlib
import math
import os
import signal
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import cast

import psutil

from isobench.common.errors import StorageError
from isobench.common.interruption import Interrupted, SignalWatch, handle_signals
from isobench.common.terminal import format_count
from isobench.config.schema import Config
from isobench.runs.folder import RunFolder
from isobench.runs.row import format_run_name
from isobench.sweep.board import Board
from isobench.sweep.capacity import GIB, Division, MemoryNeeds, measure_free_memory
from isobench.sweep.pool_worker import Ended, Line, StorageFailure, Work, WorkerSetup, start_process
from isobench.training.execute import EXIT_FAILED

POLL_SECONDS = 1.0  # between two looks at the runs' progress
WATCHED_BEAT_SECONDS = 1.0


@dataclass
class PlannedJob:
    """A run to carry out: its config, its folder, its place in the sweep, and whether its process was killed."""

    index: int
    cfg: Config
    folder: RunFolder
    position: str
    was_killed: bool = False


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


class Pool:
    """Worker processes, among which a sweep's runs are divided: each takes the next run as soon as it is free.

    A run that fails does not stop the others. A run whose process is killed from outside, as the system does for lack
    of memory, is tried again at the end, alone.

    Args:
        division: how many processes, with how many threads, and their GPUs.
        memory: a forecast of what a run needs, which decides whether one more is started; None starts all at once.
    """

    def __init__(self, division: Division, memory: MemoryNeeds | None) -> None:
        self.division, self.memory = division, memory
        self.limit = division.processes
        self.workers: list[WorkerProcess] = []
        self.killed: list[PlannedJob] = []
        self.codes: dict[int, int] = {}
        self.told_of_memory = False

    def carry_out(self, jobs: Iterable[PlannedJob]) -> list[int]:
        """Carry out the runs and return their exit codes, in their order.

        Raises:
            StorageError: results can't be written; the running runs were stopped.
            Interrupted: a signal came; the running runs have saved, and the processes have ended.
        """
        waiting = deque(jobs)
        self.board = Board(len(waiting))
        watch = SignalWatch()
        with self.board:
            try:
                watch.start()
                while waiting or self.killed or self.workers:
                    watch.raise_if_signalled()
                    if self.killed and not waiting and not self._find_busy():
                        waiting.append(self.killed.pop(0))
                    self._hand_out(waiting)
                    self._receive(POLL_SECONDS)
                    self.board.show([(w.job.cfg, w.job.folder.path, w.process.pid) for w in self.workers if w.job])
            except BaseException:
                watch.stop()
                self._stop()
                raise
            finally:
                watch.stop()
        return [self.codes[index] for index in sorted(self.codes)]

    def _find_busy(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers if worker.job is not None]

    def _hand_out(self, waiting: deque[PlannedJob]) -> None:
        """Give runs to the idle workers, start workers for more, and end those that nothing is left for."""
        given: list[tuple[WorkerProcess, PlannedJob]] = []
        for worker in [worker for worker in self.workers if worker.job is None and not worker.is_ending]:
            if waiting and self._has_room(waiting[0], worker):
                worker.job = waiting.popleft()
                given.append((worker, worker.job))
            else:
                worker.is_ending = True
                self._send(worker, None)
        while waiting and len(self.workers) < self.limit and self._has_room(waiting[0]):
            worker = self._start_worker()
            worker.job = waiting.popleft()
            given.append((worker, worker.job))
        share = math.ceil(len(self._find_busy()) / max(1, len(self.division.gpus)))
        for worker, job in given:
            self._send(worker, Work(job.cfg, job.position, share))

    def _has_room(self, job: PlannedJob, worker: WorkerProcess | None = None) -> bool:
        """True if a run may start now: there is memory for it, or no other is running.

        Args:
            job: the run.
            worker: the idle worker that would carry it out, whose memory it takes over; None for a new one.
        """
        if job.was_killed:
            return not [other for other in self.workers if other is not worker]
        busy = self._find_busy()
        if not busy or self.memory is None:
            return True
        need = self.memory.estimate(job.cfg)
        if need is None:
            return False
        free = measure_free_memory() + (worker.measure_memory() if worker else 0.0)
        for other in busy:
            expected = self.memory.estimate(cast(PlannedJob, other.job).cfg) or 0.0
            free -= max(0.0, expected - other.measure_memory())
        if need > free and not self.told_of_memory:
            self.told_of_memory = True
            self.board.print(
                f"isobench: {len(busy)} at once: one more run needs about {need / GIB:.1f} GiB of memory, and "
                f"{max(0.0, free) / GIB:.1f} GiB are free"
            )
        return need <= free

    def _start_worker(self) -> WorkerProcess:
        """Start a worker in the first free slot."""
        slot = min(set(range(self.limit)) - {worker.slot for worker in self.workers})
        variables = {}
        if self.division.threads:
            variables["OMP_NUM_THREADS"] = str(self.division.threads)
        if self.division.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = self.division.gpus[slot % len(self.division.gpus)]
        setup = WorkerSetup(os.getpid(), variables, WATCHED_BEAT_SECONDS if self.board.is_moving else None)
        worker = WorkerProcess(*start_process(setup, f"isobench-worker-{slot}"), slot)
        self.workers.append(worker)
        return worker

    def _send(self, worker: WorkerProcess, message: Work | None) -> None:
        """Send a run, or None to end the worker. If it is dead, `_receive` notices."""
        with contextlib.suppress(OSError):
            worker.pipe.send(message)

    def _receive(self, timeout: float) -> None:
        """Read what the workers have sent, and notice those that have ended.

        Raises:
            StorageError: a worker can't write results.
            Interrupted: a signal stopped a worker.
        """
        ready = wait([worker.pipe for worker in self.workers], timeout)
        for worker in [worker for worker in self.workers if worker.pipe in ready]:
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                self._note_end(worker)
                continue
            if isinstance(message, Line):
                self.board.print(message.text)
            elif isinstance(message, StorageFailure):
                worker.job = None
                raise StorageError(message.message)
            elif isinstance(message, Ended) and worker.job:
                self.codes[worker.job.index] = message.code
                if self.memory and message.peak:
                    self.memory.add(worker.job.cfg, message.peak)
                worker.job = None
                self.board.count_ended(len(self.codes))

    def _note_end(self, worker: WorkerProcess) -> None:
        """Note that a worker has ended, and why, if it had a run.

        Raises:
            Interrupted: a signal stopped it, and its run has saved.
            RuntimeError: it ended by an error, which it has printed.
        """
        worker.process.join()
        worker.pipe.close()
        self.workers.remove(worker)
        job, code = worker.job, worker.process.exitcode or 0
        if job is None:
            return
        if code > 128:
            raise Interrupted(code - 128)
        if code >= 0:
            raise RuntimeError(f"a worker process ended with exit code {code}")
        name = f"isobench: {format_run_name(job.cfg)}: a process was killed (out of memory?)"
        if job.was_killed:
            self.codes[job.index] = EXIT_FAILED
            self.board.print(f"{name}; the same command goes on with it")
        else:
            job.was_killed = True
            self.killed.append(job)
            self.board.print(f"{name}; it is tried again at the end, alone")

    def _stop(self) -> None:
        """Let the running runs save, and wait for their processes. A second Ctrl-C ends the processes at once."""
        try:
            with handle_signals(signal.SIG_IGN, signal.SIGTERM, signal.SIGUSR2):
                if busy := len(self._find_busy()):
                    self.board.print(f"isobench: saving {format_count(busy, 'running run')}; Ctrl-C ends at once")
                for worker in self.workers:
                    worker.process.terminate()
                while self.workers:
                    self._drain()
        finally:
            for worker in self.workers:
                worker.process.kill()
                worker.process.join()

    def _drain(self) -> None:
        """Read what the workers still send, print their lines, and forget those that have ended."""
        ready = wait([worker.pipe for worker in self.workers])
        for worker in [worker for worker in self.workers if worker.pipe in ready]:
            try:
                if isinstance(message := worker.pipe.recv(), Line):
                    self.board.print(message.text)
            except (EOFError, OSError):
                worker.process.join()
                self.workers.remove(worker)
