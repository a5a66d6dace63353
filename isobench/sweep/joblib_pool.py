"""joblib's pool of processes, as Hydra's own launcher drives it: made to stop in order."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from isobench.common.interruption import Interrupted, handle_signals
from isobench.runs import heartbeat
from isobench.runs.heartbeat import DEVICE_SHARE_VARIABLE

POOL_VARIABLE = "ISOBENCH_POOL"  # while joblib works: the process that has it work
stop_signal = 0  # in one of them: the signal that ended its turn
SAVE_TIMEOUT = 30.0  # seconds for the runs at work to save


@contextmanager
def handle_joblib_signals(launcher: Any, folders: Sequence[Path]) -> Iterator[None]:
    """While joblib's launcher works: Ctrl-C and TERM let the runs save first; then its processes end.

    joblib kills its processes at once, and on TERM forgets them. Other launchers see to it themselves.
    """
    if type(launcher).__name__ != "JoblibLauncher":
        yield
        return
    wanted = launcher.joblib.get("n_jobs") or 1
    os.environ[DEVICE_SHARE_VARIABLE] = str(wanted if wanted > 0 else os.cpu_count())
    os.environ[POOL_VARIABLE] = str(os.getpid())

    def stop(signum: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        end_workers(folders)
        raise Interrupted(signum)

    try:
        with handle_signals(stop, signal.SIGINT, signal.SIGTERM):
            yield
    finally:
        del os.environ[DEVICE_SHARE_VARIABLE], os.environ[POOL_VARIABLE]


def is_pool_worker() -> bool:
    """True in one of joblib's processes."""
    return os.environ.get(POOL_VARIABLE, str(os.getpid())) != str(os.getpid())


def end_workers(folders: Sequence[Path]) -> None:
    """Ask the runs at work to save and stop, wait for them, then end the pool."""
    from joblib.externals.loky import get_reusable_executor

    def at_work() -> set[int]:
        return {beat.pid for folder in folders if (beat := heartbeat.read_live_heartbeat(folder))}

    pids = at_work()
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + SAVE_TIMEOUT
    while time.monotonic() < deadline and pids & at_work():
        time.sleep(0.1)
    get_reusable_executor().shutdown(wait=False, kill_workers=True)


def is_killed_worker_error(error: Exception) -> bool:
    """True if joblib says that one of its processes was killed."""
    return type(error).__name__ == "TerminatedWorkerError"
