"""Let a worker process end in order when the process that started it is gone."""

import os
import signal
import threading
import time

from isobench.runs.heartbeat import is_process_alive

POLL_SECONDS = 1.0


def stop_without_parent(parent: int) -> None:
    """Start a thread that sends this process SIGTERM as soon as a process is gone, once.

    The run that is being carried out then saves and ends, as it does for every SIGTERM. Without this, workers would
    go on, unseen, when their parent is killed.

    Args:
        parent: the id of the process to watch, on this machine.
    """
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while is_process_alive(parent):
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
