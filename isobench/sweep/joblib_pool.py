"""Stop Hydra's joblib launcher in order: a signal lets the runs in its pool of processes save before they end."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from isobench.common import environment
from isobench.common.interruption import Interrupted, handle_signals
from isobench.runs import heartbeat

SAVE_TIMEOUT = 30.0  # seconds for the running runs to save
_stop_code: int | None = None  # in a worker that a signal stopped: the exit code of every later run


@contextmanager
def handle_joblib_signals(launcher: Any, folders: Sequence[Path]) -> Iterator[None]:
    """A context in which Ctrl-C and SIGTERM let joblib's runs save, and then end its processes.

    By itself joblib kills its processes at once on Ctrl-C, and leaves them alone on SIGTERM. For other launchers,
    which handle signals themselves, the context does nothing.

    Args:
        launcher: any Hydra launcher.
        folders: the folders of the runs that it is to carry out.

    Raises:
        Interrupted: a signal came, and the processes have ended.
    """
    if type(launcher).__name__ != "JoblibLauncher":
        yield
        return
    processes = launcher.joblib.get("n_jobs") or 1
    if processes < 0:
        processes = os.cpu_count() or 1

    def stop(signum: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        end_workers(folders)
        raise Interrupted(signum)

    with environment.pool_of_processes(processes), handle_signals(stop, signal.SIGINT, signal.SIGTERM):
        yield


def end_workers(folders: Sequence[Path]) -> None:
    """Ask the running runs to save and stop, wait for them, then end the pool."""
    from joblib.externals.loky import get_reusable_executor

    def find_running() -> set[int]:
        return {beat.pid for folder in folders if (beat := heartbeat.read_live_heartbeat(folder))}

    pids = find_running()
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + SAVE_TIMEOUT
    while time.monotonic() < deadline and pids & find_running():
        time.sleep(0.1)
    get_reusable_executor().shutdown(wait=False, kill_workers=True)


def run_unless_stopped(run: Callable[[], int]) -> int:
    """Call ``run``, which carries out one run, and return its exit code.

    A signal ends the run. In one of joblib's workers it also ends all later runs before they start, since joblib goes
    on handing them to the worker.

    Raises:
        Interrupted: a signal came and this process is no worker.
    """
    global _stop_code
    if _stop_code is not None:
        return _stop_code
    try:
        return run()
    except Interrupted as stop:
        if not environment.is_pool_worker():
            raise
        _stop_code = 128 + stop.signum
        return _stop_code


def is_killed_worker_error(error: Exception) -> bool:
    """True if an error is joblib's for a process of its pool that was killed."""
    return type(error).__name__ == "TerminatedWorkerError"
