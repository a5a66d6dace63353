"""Threads in the place of a pool's worker processes."""

import multiprocessing
import os
import signal
import threading
import time
from itertools import count
from typing import ClassVar

from helpers import make_config
from waiting import PATIENCE

from isobench.runs.folder import RunFolder
from isobench.runs.run import Run
from isobench.sweep import pool
from isobench.sweep.pool import Division, Pool, WorkerProcess


class FakeProcess:
    """A thread that answers every run as ``answer`` says: with messages, or with the exit code of its own end.

    When it is told to end, it sends ``stop_signal`` to this process and takes a moment to save. ``started`` lists all
    of these processes.
    """

    pids = count(10**8)  # of no process
    stop_signal: signal.Signals | None = None
    started: ClassVar[list["FakeProcess"]] = []

    def __init__(self, pipe, answer, running):
        self.started.append(self)
        self.pipe, self.answer, self.running, self.pid = pipe, answer, running, next(self.pids)
        self.exitcode, self.was_killed = None, False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while self.exitcode is None:
            if not self.pipe.poll(0.01):
                continue
            if (message := self.pipe.recv()) is None:
                break
            self.running.append(self.running[-1] + 1)
            time.sleep(0.02)
            answer = self.answer(message)
            while answer is None and self.exitcode is None:
                time.sleep(0.01)
            self.running.append(self.running[-1] - 1)
            if isinstance(answer, int):
                self.exitcode = answer
            elif self.exitcode is None:
                self.pipe.send(answer)
        time.sleep(0.05 if self.exitcode == -15 else 0)  # saving
        self.before_end()
        self.pipe.close()

    def before_end(self):
        """Called when this process has nothing left to do."""

    def join(self):
        self.thread.join(PATIENCE)

    def terminate(self):
        self.exitcode = -15
        if self.stop_signal:
            os.kill(os.getpid(), self.stop_signal)

    def kill(self):
        self.exitcode, self.was_killed = -9, True


def carry_out(monkeypatch, seeds, answer, memory=None, free=0.0, processes=2):
    """Carry out runs with fake workers; returns their exit codes and how many ran at once, over time."""
    running = [0]

    def start(self):
        ours, theirs = multiprocessing.Pipe()
        self.workers.append(WorkerProcess(FakeProcess(theirs, answer, running), ours, len(self.workers)))
        return self.workers[-1]

    monkeypatch.setattr(FakeProcess, "started", [])
    monkeypatch.setattr(pool, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(Pool, "_start_worker", start)
    monkeypatch.setattr(pool, "measure_free_memory", lambda: free)
    configs = [make_config(f"seed={seed}") for seed in seeds]
    runs = [Run(cfg, RunFolder("nowhere", str(i) * 64), None) for i, cfg in enumerate(configs)]
    return Pool(Division(processes, 1), memory).carry_out(runs), running
