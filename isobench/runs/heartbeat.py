"""What a running run says of itself: ``progress.json`` in its folder, renewed every few seconds."""

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, Self

import psutil

from isobench.common import environment
from isobench.common.files import replace_text
from isobench.runs.layout import PROGRESS_FILE

BEAT_INTERVAL = 10.0  # seconds between beats
STALE_AFTER = 60.0  # seconds of silence after which a run counts as gone
BEAT_FIELDS = {"state", "step", "steps", "host", "machine", "job", "log", "pid", "since", "updated"}


class Heartbeat:
    """A context in which a thread keeps ``progress.json`` fresh; it stays behind if the process dies."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / PROGRESS_FILE
        before = read_heartbeat(folder) or {}
        self.state: dict[str, Any] = {
            "state": "starting",
            "step": before.get("step"),
            "steps": before.get("steps"),
            **describe_process(),
            "pid": os.getpid(),
            "since": time.time(),
            "attempt": before.get("attempt", 0) + 1,
        }
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self.write()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self.file.unlink(missing_ok=True)  # the record takes its place
        else:
            self.state["state"] = "interrupted"
            self.write()

    def training(self, step: int, steps: int) -> None:
        """Progress, in optimiser steps."""
        began = self.state["state"] != "training"
        self.state.update(state="training", step=step, steps=steps)
        if began:
            self.write()

    def report_evaluating(self) -> None:
        """On the dev set."""
        self.state["state"] = "evaluating"
        self.write()

    def write(self) -> None:
        """Renew the file; a disk that can't be written to is reported by the record, not here."""
        with self._lock, contextlib.suppress(OSError):
            replace_text(self.file, json.dumps({**self.state, "updated": time.time()}))

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_INTERVAL):
            self.write()


def describe_process() -> dict[str, Any]:
    """Host, job and log of this process, and among how many runs its device is shared, as far as a launcher told."""
    return {
        "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "machine": socket.gethostname(),
        "job": environment.read_job(),
        "log": environment.read_log(),
        "share": environment.read_device_share(),
    }


def read_heartbeat(folder: Path) -> dict[str, Any] | None:
    """The last beat of a run, None if there is none or it can't be read."""
    try:
        state = json.loads((folder / PROGRESS_FILE).read_text())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and state.keys() >= BEAT_FIELDS else None


def is_alive(beat: dict[str, Any]) -> bool:
    """Whether a run is still at it: its last beat is fresh and, on this machine, its process is there."""
    if beat["state"] == "interrupted" or time.time() - beat["updated"] > STALE_AFTER:
        return False
    return beat["machine"] != socket.gethostname() or is_process_alive(beat["pid"])


def read_live_heartbeat(folder: Path) -> dict[str, Any] | None:
    """The last beat of a run that is still at it, else None."""
    beat = read_heartbeat(folder)
    return beat if beat is not None and is_alive(beat) else None


def is_process_alive(pid: int) -> bool:
    """Whether a process of this machine is there and no zombie."""
    try:
        os.kill(pid, 0)  # psutil does not see other users' processes where the system hides them
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
    except (PermissionError, psutil.AccessDenied):  # another user's
        return True


def wait_for_beat(folder: Path) -> bool:
    """Watch a run's heartbeat for longer than it takes to beat: True if it does, or the run ends."""
    first = read_heartbeat(folder)
    deadline = time.monotonic() + 2.5 * BEAT_INTERVAL
    while time.monotonic() < deadline:
        time.sleep(1)
        if read_heartbeat(folder) != first:
            return True
    return False
