"""A worker process of a sweep: it carries out the runs that come through a pipe, one after another."""

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from isobench.common import environment
from isobench.common.errors import StorageError
from isobench.common.interruption import Interrupted, hold_signals, raise_interrupted
from isobench.config.schema import Config
from isobench.runs.state import is_process_alive
from isobench.training.execute import EXIT_DONE, execute_run

MIB = 2**20


@dataclass(frozen=True)
class Work:
    """A run for a worker: its config, its place in the sweep, and how many runs share the machine with it."""

    cfg: Config
    position: str
    share: int = 1


@dataclass(frozen=True)
class Ended:
    """The end of a run: its exit code and its peak memory in bytes, where that is known."""

    code: int
    peak: float | None


class LineSender(io.TextIOBase):
    """A text file that sends each whole line through a pipe; what a progress bar draws over is dropped."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self.pipe, self.rest, self.lock = pipe, "", threading.RLock()

    def writable(self) -> bool:
        """Return True: this is a file for output."""
        return True

    def write(self, text: str) -> int:
        """Send the lines that are whole now. If the parent is gone, they are dropped."""
        with self.lock:
            *lines, self.rest = (self.rest + text).replace("\r\n", "\n").split("\n")
            self.rest = self.rest.rpartition("\r")[2]
            for line in lines:
                self.send(line.rpartition("\r")[2])
        return len(text)

    def send(self, message: Any) -> None:
        """Send a message, unless the parent is gone."""
        with self.lock, contextlib.suppress(OSError):
            self.pipe.send(message)


def start_process(
    name: str, variables: dict[str, str], beat_seconds: float | None
) -> tuple[SpawnProcess, Connection]:
    """Start a worker process; return it and the pipe to it. It gets no Ctrl-C: the sweep's own process obeys that."""
    context = multiprocessing.get_context("spawn")  # a fork of a process that has imported torch may hang
    pipe, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, os.getpid(), variables, beat_seconds), name=name)
    resource_tracker.ensure_running()  # if it were started later, Ctrl-C would no longer be held back
    with hold_signals(signal.SIGINT, signal.SIGHUP):
        process.start()
    theirs.close()
    return process, pipe


def work(pipe: Connection, parent: int, variables: dict[str, str], beat_seconds: float | None = None) -> None:
    """Carry out runs until None comes, or the parent is gone.

    A signal lets the run that is being carried out save, and ends the process with the exit code 128 + its number.

    Args:
        pipe: brings `Work`, and takes the lines that are printed, each run's `Ended`, and a StorageError.
        parent: the process id of the sweep's own process.
        variables: environment variables to set before torch is imported: its threads, its GPU.
        beat_seconds: the time between the heartbeats of its runs; None takes the usual one.
    """
    for signum in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(signum, raise_interrupted)
    for signum in (signal.SIGINT, signal.SIGHUP):  # the sweep's own process acts on these
        signal.signal(signum, signal.SIG_IGN)
    os.environ.update(variables)
    environment.share_processor()
    environment.keep_freed_memory()
    if beat_seconds is not None:
        environment.note_beat_seconds(beat_seconds)
    output = LineSender(pipe)
    sys.stdout = sys.stderr = output
    try:
        threading.Thread(target=_stop_without, args=(parent,), daemon=True).start()
        try:
            _carry_out(pipe, output)
        except StorageError as error:
            output.send(error)
    except Interrupted as stop:
        raise SystemExit(128 + stop.signum) from None
    finally:  # nothing is left to save: a later signal must not disturb the end of the process
        for signum in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(signum, signal.SIG_IGN)


def _carry_out(pipe: Connection, output: LineSender) -> None:
    """Carry out the runs that the pipe brings, and report the end of each."""
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):  # the parent is gone
            return
        if message is None:
            return
        environment.note_device_share(message.share)
        code, row = execute_run(message.cfg, message.position)
        record = row.record if row is not None and code == EXIT_DONE else None
        output.send(Ended(code, record.cost.peak_memory_mib.resident * MIB if record else None))


def _stop_without(parent: int) -> None:
    """Send this process SIGTERM as soon as its parent is gone; it would go on, unseen, when the parent is killed."""
    while is_process_alive(parent):
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
