"""Carry out a sweep's runs at the same time, in worker processes of this machine.

A worker takes one run after another through a pipe and answers each with its end and the lines that it printed.
"""

import contextlib
import io
import math
import multiprocessing
import os
import re
import signal
import threading
from collections import deque
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

import psutil

from isobench.common import environment
from isobench.common.errors import StorageError
from isobench.common.interruption import (
    Interrupted,
    SignalWatch,
    handle_signals,
    hold_signals,
    obey_ctrl_c,
    raise_interrupted,
)
from isobench.common.progress import ProgressBar, find_terminal
from isobench.common.terminal import format_count, replace_control_characters
from isobench.config.schema import Config
from isobench.runs.run import Run, format_run_name
from isobench.sweep.forecast import GIB, MIB, MemoryForecast
from isobench.training.execute import EXIT_DONE, EXIT_FAILED, execute_run

POLL_SECONDS = 1.0  # between two drawings of the progress bar
CGROUPS, MEMBERSHIPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Division:
    """How runs share the machine.

    Args:
        processes: how many are carried out at the same time, if there is memory for them.
        threads: torch's threads in each process; None leaves them to torch.
        gpus: the GPU of each process, as CUDA_VISIBLE_DEVICES names it; empty where the processor computes.
    """

    processes: int
    threads: int | None = None
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """A run for a worker: its config and key, its position in the sweep, and how many runs share its machine."""

    cfg: Config
    key: str | None
    position: str
    share: int = 1


@dataclass(frozen=True)
class Ended:
    """The end of a run: its exit code, its peak memory in bytes where that is known, and what it printed."""

    code: int
    peak: float | None
    output: str = ""


@dataclass
class _Job:
    """A run to carry out, and what has happened to it.

    ``index`` is its position among the runs, ``kills`` how many of its processes were killed, and ``had_company``
    whether others ran at the same time as its last process.
    """

    index: int
    run: Run
    kills: int = 0
    had_company: bool = False


@dataclass
class WorkerProcess:
    """A worker: its process, the pipe to it, its number, its run if it has one, and whether it was told to end."""

    process: SpawnProcess
    pipe: Connection
    slot: int
    job: _Job | None = None
    is_ending: bool = False

    def measure_memory(self) -> float:
        """Return the bytes of memory that the process holds; 0 if it is gone."""
        try:
            return float(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.Error:
            return 0.0

    def print_until_end(self) -> None:
        """Wait for the process to end, and print what its last run says."""
        with contextlib.suppress(EOFError, OSError):  # the process has ended and closed its pipe
            while True:
                message = self.pipe.recv()
                if isinstance(message, Ended):
                    _print_lines(message.output)
        self.process.join()


class Pool:
    """Divide a sweep's runs among worker processes: each process takes the next run as soon as it is free.

    A run that fails does not stop the others. The system may kill a process for lack of memory. Its run is then tried
    again at the end, and if it is killed again, a last time alone. With ``memory``, a forecast of what a run needs,
    a run starts only if there is room, and after a kill fewer start at once. It is None if the user has set the
    number of processes: they all start at once.
    """

    def __init__(self, division: Division, memory: MemoryForecast | None) -> None:
        self.division, self.memory = division, memory
        self.limit = division.processes
        self.workers: list[WorkerProcess] = []
        self.waiting: deque[_Job] = deque()
        self.waiting_alone: deque[_Job] = deque()  # runs that were killed twice
        self.codes: dict[int, int] = {}
        self.told_of_memory = False

    def carry_out(self, runs: list[Run]) -> list[int]:
        """Carry out the runs and return their exit codes, in their order.

        On a terminal, a progress bar counts the runs that have ended. Raises StorageError or Interrupted when the
        running runs have saved and the processes have ended.
        """
        self.waiting.extend(_Job(index, run) for index, run in enumerate(runs))
        self.total = len(runs)
        watch = SignalWatch()
        with ProgressBar("runs", self.total, " runs") as bar:
            try:
                watch.start()
                while self.waiting or self.waiting_alone or self._find_busy():
                    watch.raise_if_signalled()
                    if self.waiting_alone and not self.waiting and not self.workers:
                        self.waiting.append(self.waiting_alone.popleft())
                    self._hand_out()
                    self._receive(POLL_SECONDS)
                    bar.n = len(self.codes)
                    bar.refresh()
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
        given: list[tuple[WorkerProcess, _Job]] = []
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
            self._send(worker, Work(job.run.cfg, job.run.folder.key, f"[{job.index + 1}/{self.total}] ", share))
        for worker in busy if given and len(busy) > 1 else []:
            cast(_Job, worker.job).had_company = True

    def _has_room(self, job: _Job, worker: WorkerProcess | None = None) -> bool:
        """Return True if there is memory for a run, or no other is running.

        ``worker`` is the idle worker that would carry it out, whose memory it takes over; None for a new one.
        """
        busy = self._find_busy()
        if not busy or self.memory is None:
            return True
        need = self.memory.estimate(job.run.cfg)
        if need is None:
            return False
        free = measure_free_memory() + (worker.measure_memory() if worker else 0.0)
        reserved = 0.0
        for other in busy:
            expected = self.memory.estimate(cast(_Job, other.job).run.cfg) or 0.0
            reserved += max(0.0, expected - other.measure_memory())
        if need > free - reserved and not self.told_of_memory:
            self.told_of_memory = True
            _print_lines(
                f"isobench: {len(busy)} at once: one more run needs about {need / GIB:.1f} GiB of memory; "
                f"{free / GIB:.1f} GiB are free, of which the others may still take {reserved / GIB:.1f} GiB"
            )
        return need <= free - reserved

    def _start_worker(self) -> WorkerProcess:
        slot = min(set(range(self.division.processes)) - {worker.slot for worker in self.workers})
        variables = {}
        if self.division.threads:
            variables["OMP_NUM_THREADS"] = str(self.division.threads)
        if self.division.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = self.division.gpus[slot % len(self.division.gpus)]
        worker = WorkerProcess(*_start_process(f"isobench-worker-{slot}", variables), slot)
        self.workers.append(worker)
        return worker

    def _send(self, worker: WorkerProcess, message: Work | None) -> None:
        """Send a run, or None to end the worker. If it is dead, `_receive` notices."""
        with contextlib.suppress(OSError):
            worker.pipe.send(message)

    def _let_go(self) -> None:
        """Tell the idle workers to end; Python waits for them when this process itself ends.

        This does not wait: that takes seconds, and nothing of theirs is left to save.
        """
        for worker in self.workers:
            if not worker.is_ending:
                self._send(worker, None)
            worker.pipe.close()
        self.workers.clear()

    def _receive(self, timeout: float) -> None:
        """Read what the workers have sent, and notice those that have ended."""
        ready = wait([worker.pipe for worker in self.workers], timeout)
        for worker in [worker for worker in self.workers if worker.pipe in ready]:
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                self._remove(worker)
                continue
            job, worker.job = cast(_Job, worker.job), None
            if isinstance(message, StorageError):
                raise message
            _print_lines(message.output)
            self.codes[job.index] = message.code
            if self.memory and message.peak:
                self.memory.add(job.run.cfg, message.peak)

    def _remove(self, worker: WorkerProcess) -> None:
        """Remove a worker that ended; raise Interrupted if a signal stopped it, RuntimeError if an error did."""
        worker.process.join()
        worker.pipe.close()
        self.workers.remove(worker)
        job, code = worker.job, worker.process.exitcode or 0
        if job is None:
            return
        if code > 128:
            raise Interrupted(code - 128)
        if code >= 0:
            raise RuntimeError(f"{format_run_name(job.run.cfg)}: a worker process ended with exit code {code}")
        self._put_back(job, signal.Signals(-code))

    def _put_back(self, job: _Job, signum: signal.Signals) -> None:
        """Decide whether to try a run again after a signal has ended its process.

        Lack of memory looks like SIGKILL. From then on, no more runs are carried out at once than remain now, unless
        the user has set the number of processes.
        """
        job.kills += 1
        reason = "was killed (out of memory?)" if signum == signal.SIGKILL else f"was ended by {signum.name}"
        name = f"isobench: {format_run_name(job.run.cfg)}: a process {reason}"
        if job.kills > 1 and not job.had_company:
            self.codes[job.index] = EXIT_FAILED
            _print_lines(f"{name}; the same command goes on with it")
            return
        again = "it is tried again at the end" + (", alone" if job.kills > 1 else "")
        if signum == signal.SIGKILL and job.had_company and self.memory is not None:
            self.limit = max(1, min(self.limit, len(self._find_busy())))
            again += f"; from now on, at most {format_count(self.limit, 'run')} at once"
        (self.waiting_alone if job.kills > 1 else self.waiting).append(job)
        _print_lines(f"{name}; {again}")

    def _stop(self) -> None:
        """Ask the workers to save their runs and to end, and wait until they have. Ctrl-C kills them at once."""
        with handle_signals(signal.SIG_IGN, signal.SIGTERM, signal.SIGUSR2, signal.SIGHUP), obey_ctrl_c():
            try:
                for worker in self.workers:
                    worker.process.terminate()
                if busy := len(self._find_busy()):
                    _print_lines(f"isobench: saving {format_count(busy, 'running run')}; Ctrl-C ends at once")
                for worker in self.workers:
                    worker.print_until_end()
            except KeyboardInterrupt:
                for worker in self.workers:
                    worker.process.kill()
                    worker.process.join()
                raise


def _print_lines(text: str) -> None:
    for line in text.splitlines():
        ProgressBar.write(replace_control_characters(line), file=find_terminal())


def _start_process(name: str, variables: dict[str, str]) -> tuple[SpawnProcess, Connection]:
    """Start a worker process; return it and the pipe to it. It gets no Ctrl-C: the sweep's own process obeys that."""
    context = multiprocessing.get_context("spawn")  # a fork of a process that has imported torch may hang
    pipe, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, variables), name=name)
    with hold_signals(signal.SIGHUP):
        resource_tracker.ensure_running()  # it lets Ctrl-C through again
        with hold_signals(signal.SIGINT):
            process.start()
    theirs.close()
    return process, pipe


def work(pipe: Connection, variables: dict[str, str]) -> None:
    """Carry out the runs that ``pipe`` brings, in a worker process, until None comes or the parent is gone.

    A signal lets the run that is being carried out save, and ends the process with the exit code 128 + its number.
    ``variables`` of the environment are set before torch is imported: its threads, its GPU.
    """
    for signum in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(signum, raise_interrupted)
    for signum in (signal.SIGINT, signal.SIGHUP):  # the sweep's own process acts on these
        signal.signal(signum, signal.SIG_IGN)
    os.environ.update(variables)
    environment.share_processor()
    environment.keep_freed_memory()
    try:
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        while (message := _receive_work(pipe)) is not None:
            ended = _carry_out(message)
            with contextlib.suppress(OSError):  # the parent is gone
                pipe.send(ended)
    except Interrupted as stop:
        raise SystemExit(128 + stop.signum) from None
    finally:  # nothing is left to save: a later signal must not disturb the end of the process
        for signum in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(signum, signal.SIG_IGN)


def _receive_work(pipe: Connection) -> Work | None:
    try:
        return cast(Work | None, pipe.recv())
    except (EOFError, OSError):  # the parent is gone
        return None


def _carry_out(message: Work) -> Ended | StorageError:
    """Carry out a run. What it prints is kept, so that the sweep's own process prints it in whole lines."""
    os.environ[environment.DEVICE_SHARE] = str(message.share)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code, run = execute_run(message.cfg, message.position, key=message.key)
    except StorageError as error:
        return error
    record = run.record if run is not None and code == EXIT_DONE else None
    lines = re.sub(r"[^\n]*\r(?!\n)", "", output.getvalue())  # without what a library's progress bar draws over
    return Ended(code, record.cost.peak_memory_mib.resident * MIB if record else None, lines)


def _stop_with_parent() -> None:
    """Send this process SIGTERM as soon as its parent is gone; it would go on, unseen, when the parent is killed."""
    if parent := multiprocessing.parent_process():
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def measure_free_memory() -> float:
    """Return the bytes that this machine has left, or that this process's container or job may still take."""
    free = float(psutil.virtual_memory().available)
    return min([free, *(limit - used for limit, used in read_memory_limits())])


def read_memory_limits(groups: Path = CGROUPS, memberships: Path = MEMBERSHIPS) -> list[tuple[float, float]]:
    """Read the limit and the use of memory, in bytes, of every control group of Linux that this process is in.

    Files that were read and can be dropped don't count as used. The list is empty where there are no such groups.
    """
    found = []
    try:
        lines = [line.split(":", 2) for line in memberships.read_text().splitlines()]
    except OSError:
        return []
    for _, controllers, path in lines:
        if controllers not in ("", "memory"):
            continue
        root = groups / controllers
        limit_file, use_file, cached = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if controllers
            else ("memory.max", "memory.current", "inactive_file")
        )
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents[: len(Path(path).parts)]):
            try:
                limit, use = float((group / limit_file).read_text()), float((group / use_file).read_text())
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):  # no such group here, or "max": no limit
                continue
            found.append((limit, use - float(stat.get(cached, 0))))
    return found
