"""Carry out a sweep's runs at the same time, in worker processes of this machine."""

import contextlib
import math
import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import cast

import psutil

from isobench.common.errors import StorageError
from isobench.common.interruption import Interrupted, SignalWatch, handle_signals, obey_ctrl_c
from isobench.common.terminal import format_count
from isobench.runs.run import Run, format_run_name
from isobench.sweep.board import Board
from isobench.sweep.capacity import GIB, Division, MemoryNeeds, measure_free_memory
from isobench.sweep.pool_worker import Ended, Work, start_process
from isobench.training.execute import EXIT_FAILED

POLL_SECONDS = 1.0  # between two looks at the runs' progress
WATCHED_BEAT_SECONDS = 1.0


@dataclass
class Job:
    """A run to carry out, and what has happened to it.

    Args:
        index: its place among the runs, from 0.
        row: the run.
        kills: how many of its processes were killed.
        had_company: whether others ran at the same time as its last process.
    """

    index: int
    row: Run
    kills: int = 0
    had_company: bool = False


@dataclass
class WorkerProcess:
    """A worker: its process, the pipe to it, its number, its run if it has one, and whether it was told to end."""

    process: SpawnProcess
    pipe: Connection
    slot: int
    job: Job | None = None
    is_ending: bool = False

    def measure_memory(self) -> float:
        """Return the bytes of memory that the process holds; 0 if it is gone."""
        try:
            return float(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.Error:
            return 0.0


class Pool:
    """Divide a sweep's runs among worker processes: each process takes the next run as soon as it is free.

    A run that fails does not stop the others. The system may kill a process for lack of memory. Its run is then tried
    again at the end, and if it is killed again, a last time alone. With ``memory``, fewer runs start at once from
    then on.

    Args:
        division: how many processes, with how many threads, and their GPUs.
        memory: a forecast of what a run needs; it decides whether one more is started. None if the user has set the
            number of processes; they then all start at once.
    """

    def __init__(self, division: Division, memory: MemoryNeeds | None) -> None:
        self.division, self.memory = division, memory
        self.limit = division.processes
        self.workers: list[WorkerProcess] = []
        self.waiting: deque[Job] = deque()
        self.waiting_alone: deque[Job] = deque()  # runs that were killed twice
        self.codes: dict[int, int] = {}
        self.told_of_memory = False

    def carry_out(self, rows: list[Run]) -> list[int]:
        """Carry out the runs and return their exit codes, in their order.

        Raises:
            StorageError: results can't be written; the running runs were stopped.
            Interrupted: a signal came; the running runs have saved, and the processes have ended.
        """
        self.waiting.extend(Job(index, row) for index, row in enumerate(rows))
        self.total = len(rows)
        self.board = Board([row.cfg for row in rows])
        watch = SignalWatch()
        with self.board:
            try:
                watch.start()
                while self.waiting or self.waiting_alone or self._find_busy():
                    watch.raise_if_signalled()
                    if self.waiting_alone and not self.waiting and not self.workers:
                        self.waiting.append(self.waiting_alone.popleft())
                    self._hand_out()
                    self._receive(POLL_SECONDS)
                    busy = [(worker.job.row, worker.process.pid) for worker in self.workers if worker.job]
                    self.board.show([(row.cfg, row.folder.path, pid) for row, pid in busy])
                self._let_go()
            except BaseException:
                self._stop()
                raise
            finally:
                watch.stop()
        return [self.codes[index] for index in sorted(self.codes)]

    def _find_busy(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers if worker.job is not None]

    def _hand_out(self) -> None:
        """Give runs to the idle workers, start workers for more, and end those that nothing is left for."""
        given: list[tuple[WorkerProcess, Job]] = []
        for worker in [worker for worker in self.workers if worker.job is None and not worker.is_ending]:
            if self.waiting and len(self._find_busy()) < self.limit and self._has_room(self.waiting[0], worker):
                worker.job = self.waiting.popleft()
                given.append((worker, worker.job))
            else:
                worker.is_ending = True
                self._send(worker, None)
        while self.waiting and len(self.workers) < self.limit and self._has_room(self.waiting[0]):
            worker = self._start_worker()
            worker.job = self.waiting.popleft()
            given.append((worker, worker.job))
        busy = self._find_busy()
        share = math.ceil(len(busy) / max(1, len(self.division.gpus)))
        for worker, job in given:
            job.had_company = False
            self._send(worker, Work(job.row.cfg, f"[{job.index + 1}/{self.total}] ", share))
        for worker in busy if given and len(busy) > 1 else []:
            cast(Job, worker.job).had_company = True

    def _has_room(self, job: Job, worker: WorkerProcess | None = None) -> bool:
        """True if a run may start now: there is memory for it, or no other is running.

        Args:
            job: the run.
            worker: the idle worker that would carry it out, whose memory it takes over; None for a new one.
        """
        busy = self._find_busy()
        if not busy or self.memory is None:
            return True
        need = self.memory.estimate(job.row.cfg)
        if need is None:
            return False
        free = measure_free_memory() + (worker.measure_memory() if worker else 0.0)
        reserved = 0.0
        for other in busy:
            expected = self.memory.estimate(cast(Job, other.job).row.cfg) or 0.0
            reserved += max(0.0, expected - other.measure_memory())
        if need > free - reserved and not self.told_of_memory:
            self.told_of_memory = True
            self.board.print(
                f"isobench: {len(busy)} at once: one more run needs about {need / GIB:.1f} GiB of memory; "
                f"{free / GIB:.1f} GiB are free, of which the others may still take {reserved / GIB:.1f} GiB"
            )
        return need <= free - reserved

    def _start_worker(self) -> WorkerProcess:
        """Start a worker in the first free slot."""
        slot = min(set(range(self.division.processes)) - {worker.slot for worker in self.workers})
        variables = {}
        if self.division.threads:
            variables["OMP_NUM_THREADS"] = str(self.division.threads)
        if self.division.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = self.division.gpus[slot % len(self.division.gpus)]
        beat_seconds = WATCHED_BEAT_SECONDS if self.board.is_moving else None
        worker = WorkerProcess(*start_process(f"isobench-worker-{slot}", variables, beat_seconds), slot)
        self.workers.append(worker)
        return worker

    def _send(self, worker: WorkerProcess, message: Work | None) -> None:
        """Send a run, or None to end the worker. If it is dead, `_receive` notices."""
        with contextlib.suppress(OSError):
            worker.pipe.send(message)

    def _let_go(self) -> None:
        """Tell the idle workers to end, and don't wait: that takes seconds, and nothing of theirs is left to save.

        Python waits for them when this process itself ends.
        """
        for worker in self.workers:
            if not worker.is_ending:
                self._send(worker, None)
            worker.pipe.close()
        self.workers.clear()

    def _receive(self, timeout: float) -> None:
        """Read what the workers have sent, and notice those that have ended.

        Raises:
            StorageError: a worker can't write results.
            Interrupted: a signal stopped a worker.
        """
        for worker, message in self._read_messages(timeout):
            if message is None:
                self._note_end(worker)
            elif isinstance(message, StorageError):
                worker.job = None
                raise message
            elif worker.job:
                self.codes[worker.job.index] = message.code
                if self.memory and message.peak:
                    self.memory.add(worker.job.row.cfg, message.peak)
                worker.job = None
                self.board.ended = len(self.codes)

    def _read_messages(self, timeout: float | None) -> Iterator[tuple[WorkerProcess, Ended | StorageError | None]]:
        """Print the lines that workers have sent, and yield their other messages; None is that of one that ended."""
        ready = wait([worker.pipe for worker in self.workers], timeout)
        for worker in [worker for worker in self.workers if worker.pipe in ready]:
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                worker.process.join()
                worker.pipe.close()
                self.workers.remove(worker)
                yield worker, None
            else:
                if isinstance(message, str):
                    self.board.print(message)
                else:
                    yield worker, message

    def _note_end(self, worker: WorkerProcess) -> None:
        """Note that a worker has ended, and why, if it had a run.

        Raises:
            Interrupted: a signal stopped it, and its run has saved.
            RuntimeError: it ended by an error, which it has printed.
        """
        job, code = worker.job, worker.process.exitcode or 0
        if job is None:
            return
        if code > 128:
            raise Interrupted(code - 128)
        if code >= 0:
            raise RuntimeError(f"{format_run_name(job.row.cfg)}: a worker process ended with exit code {code}")
        self._put_back(job, signal.Signals(-code))

    def _put_back(self, job: Job, signum: signal.Signals) -> None:
        """Decide whether to try a run again after a signal has ended its process.

        Lack of memory looks like SIGKILL. From then on, no more runs are carried out at once than remain now, unless
        the user has set the number of processes.
        """
        job.kills += 1
        reason = "was killed (out of memory?)" if signum == signal.SIGKILL else f"was ended by {signum.name}"
        name = f"isobench: {format_run_name(job.row.cfg)}: a process {reason}"
        if job.kills > 1 and not job.had_company:
            self.codes[job.index] = EXIT_FAILED
            self.board.print(f"{name}; the same command goes on with it")
            return
        again = "it is tried again at the end" + (", alone" if job.kills > 1 else "")
        if signum == signal.SIGKILL and job.had_company and self.memory is not None:
            self.limit = max(1, min(self.limit, len(self._find_busy())))
            again += f"; from now on, at most {format_count(self.limit, 'run')} at once"
        (self.waiting_alone if job.kills > 1 else self.waiting).append(job)
        self.board.print(f"{name}; {again}")

    def _stop(self) -> None:
        """Let the running runs save, and wait for their processes. Ctrl-C ends the processes at once."""
        with handle_signals(signal.SIG_IGN, signal.SIGTERM, signal.SIGUSR2, signal.SIGHUP), obey_ctrl_c():
            try:
                for worker in self.workers:
                    worker.process.terminate()
                if busy := len(self._find_busy()):
                    self.board.print(f"isobench: saving {format_count(busy, 'running run')}; Ctrl-C ends at once")
                while self.workers:
                    list(self._read_messages(None))
            except KeyboardInterrupt:
                for worker in self.workers:
                    worker.process.kill()
                    worker.process.join()
                raise
