"""Carry out a plan in several worker processes of this machine, and show how many of its runs have ended.

The workers divide the runs among themselves (worker.py). Here they are started, their lines are printed, and what a
signal or a lack of memory does to them is seen to.
"""

import math
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence

from isobench.common import environment
from isobench.common.interruption import Interrupted, SignalWatch, handle_signals, hold_signals, obey_ctrl_c
from isobench.common.progress import ProgressBar, find_terminal
from isobench.common.terminal import format_count, replace_control_characters
from isobench.runs.run import Run, format_run_name
from isobench.runs.state import read_heartbeat, read_live_heartbeat
from isobench.sweep.forecast import format_duration
from isobench.sweep.machine import Division
from isobench.sweep.worker import EXIT_STORAGE
from isobench.training.execute import EXIT_FAILED, EXIT_USER_ERROR

POLL_SECONDS = 0.2
LINE_SECONDS = 60.0  # between lines of progress where there is no terminal for a bar
READING_SECONDS = 5.0  # for which a process that a worker has started may keep its output open
BEFORE_A_RUN = ""  # the key of no run


class Workers:
    """The worker processes of one sweep.

    When the system kills a worker, mostly for lack of memory, it is not replaced, and the others leave the run that
    it was carrying out. At the end a single worker tries such runs again, and does what nobody got to.

    Args:
        command: that of a worker, without ``--attached``.
        division: how many workers there are, and what each has of the machine.
    """

    def __init__(self, command: list[str], division: Division) -> None:
        self.command, self.division = command, division
        self.processes: dict[subprocess.Popen[bytes], str] = {}  # with the GPU of each
        self.readers: list[threading.Thread] = []
        self.codes: set[int] = set()
        self.printed: set[str] = set()

    def carry_out(self, runs: Sequence[Run], since: float) -> list[int]:
        """Wait until every run has ended or can't; return the exit codes of what the runs' records don't tell.

        On a terminal, a progress bar counts the runs that have ended after ``since``. Raises Interrupted, or
        SystemExit if results can't be written, when the running runs have saved and the processes have ended.
        """
        self.left, self.since = list(runs), since
        self.begun = self.told = time.monotonic()
        watch = SignalWatch()
        with ProgressBar("runs", len(runs), " runs") as self.bar:
            try:
                watch.start()
                lost = self._wait(self.division.workers, watch, since)
                moment, given_up = time.time(), set[str]()  # what is killed again, alone on the machine, is given up
                while lost and any(run.folder.key not in given_up for run in self.left):
                    lost = self._wait(1, watch, moment)
                    given_up |= lost if BEFORE_A_RUN not in lost else {run.folder.key for run in self.left}
            except BaseException:
                self._stop()
                raise
            finally:
                watch.stop()
        return [*self.codes, *([EXIT_FAILED] if any(run.folder.key in given_up for run in self.left) else [])]

    def _wait(self, count: int, watch: SignalWatch, killed_since: float) -> set[str]:
        """Start workers and wait for their end; return the keys of the runs that were killed with one.

        The workers leave a run that was killed after ``killed_since``, a time in seconds since 1970.
        """
        all_lost = set[str]()
        for _ in range(count):
            self._start(count, killed_since)
        while self.processes:
            watch.raise_if_signalled()
            for process in [process for process in self.processes if process.poll() is not None]:
                del self.processes[process]
                lost = self._find_lost_run(process, count)
                all_lost |= set() if lost is None else {lost}
            self.left = [run for run in self.left if run.folder.read_end_time() < self.since]
            self._show_progress()
            time.sleep(POLL_SECONDS + len(self.left) / 5000)  # a network's file server is asked for each run
        for reader in self.readers:
            reader.join(READING_SECONDS)
        return all_lost

    def _show_progress(self) -> None:
        """Draw the bar, or where there is no terminal write a line now and then."""
        done, now = self.bar.total - len(self.left), time.monotonic()
        self.bar.n = done
        self.bar.refresh()
        if self.bar.disable and self.left and now - self.told >= LINE_SECONDS:
            self.told = now
            rest = (now - self.begun) / done * len(self.left) if done else None
            expected = f", about {format_duration(rest)} left" if rest else ""
            _print_line(f"{done} of {format_count(self.bar.total, 'run')} ended{expected}")

    def _start(self, count: int, killed_since: float) -> None:
        """Start one of ``count`` workers. It gets no Ctrl-C, because the sweep's own process obeys that."""
        gpus, variables = self.division.gpus, dict(os.environ)
        variables[environment.DEVICE_SHARE] = str(math.ceil(count / max(1, len(gpus))))
        if self.division.threads:
            variables["OMP_NUM_THREADS"] = str(self.division.threads)
        gpu = min(gpus, key=list(self.processes.values()).count, default="")
        if gpu:
            variables["CUDA_VISIBLE_DEVICES"] = gpu
        with hold_signals(signal.SIGINT, signal.SIGHUP):
            process = subprocess.Popen(
                [*self.command, f"--killed-since={killed_since}", "--attached"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=variables,
            )  # fmt: skip
        self.processes[process] = gpu
        self.readers.append(threading.Thread(target=self._print_lines, args=[process], daemon=True))
        self.readers[-1].start()

    def _print_lines(self, process: subprocess.Popen[bytes]) -> None:
        """Print the lines of a worker; a note that several workers print appears once."""
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip("\n").rpartition("\r")[2]  # without a library's progress bar
            if line not in self.printed:
                _print_line(line)
            if line.startswith("isobench: "):
                self.printed.add(line)

    def _find_lost_run(self, process: subprocess.Popen[bytes], count: int) -> str | None:
        """Return the key of the run that was killed with one of ``count`` workers, if any; raise what stops all."""
        code = process.returncode
        if code == EXIT_STORAGE:  # the worker has said why
            raise SystemExit(EXIT_USER_ERROR)
        if code > 128:
            raise Interrupted(code - 128)
        if code == EXIT_USER_ERROR:
            self.codes.add(code)
        if code >= 0:
            return None
        here = (socket.gethostname(), process.pid)
        beats = [(run, read_heartbeat(run.folder.path)) for run in self.left]
        lost = next((run for run, beat in beats if beat and (beat.machine, beat.pid) == here), None)
        name = signal.Signals(-code).name
        reason = "was killed (out of memory?)" if name == "SIGKILL" else f"was ended by {name}"
        if lost is None:
            _print_line(f"isobench: a process {reason} before it began a run")
            return BEFORE_A_RUN
        advice = "it is tried again at the end, alone" if count > 1 else "the same command goes on with it"
        _print_line(f"isobench: {format_run_name(lost.cfg)}: a process {reason}; {advice}")
        return lost.folder.key

    def _stop(self) -> None:
        """Ask the workers to save their runs and to end, and wait until they have. Ctrl-C kills them at once."""
        with handle_signals(signal.SIG_IGN, signal.SIGTERM, signal.SIGUSR2, signal.SIGHUP), obey_ctrl_c():
            try:
                for process in self.processes:
                    process.terminate()
                pids = {process.pid for process in self.processes}
                beats = [read_live_heartbeat(run.folder.path) for run in self.left]
                if busy := sum(beat is not None and beat.pid in pids for beat in beats):
                    _print_line(f"isobench: saving {format_count(busy, 'running run')}; Ctrl-C ends at once")
                for process in self.processes:
                    process.wait()
                for reader in self.readers:
                    reader.join(READING_SECONDS)
            except KeyboardInterrupt:
                for process in self.processes:
                    process.kill()
                raise


def _print_line(line: str) -> None:
    ProgressBar.write(replace_control_characters(line), file=find_terminal())
