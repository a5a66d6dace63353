"""The heartbeat of a running run: ``progress.json`` in its folder, renewed every few seconds by a thread."""

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Self

import psutil

from isobench.common import environment
from isobench.common.checksums import add_json_checksum, read_json
from isobench.common.files import read_file_time, write_text
from isobench.common.terminal import print_note
from isobench.runs.layout import PROGRESS_FILE
from isobench.runs.record import Beat, Where

BEAT_INTERVAL = 10.0  # seconds between beats, unless a terminal shows them
STALE_AFTER = 60.0  # seconds of silence after which a run counts as gone


class Heartbeat:
    """A context in which a thread keeps ``progress.json`` fresh.

    The file is removed when the context ends well. It stays, marked as interrupted, when the context ends by an
    exception, and stays as it is when the process is killed.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / PROGRESS_FILE
        before, now = read_heartbeat(folder), time.time()
        if before is None and self.file.exists():
            print_note(f"{self.file} is damaged: the run's attempts are counted anew")
        self.beat = Beat(
            state="starting",
            step=before.step if before else None,
            steps=before.steps if before else None,
            **describe_process().model_dump(),
            pid=os.getpid(),
            since=now,
            updated=now,
            attempt=before.attempt + 1 if before else 1,
        )
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._beat_until_stopped, daemon=True)

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
            self.beat = self.beat.model_copy(update={"state": "interrupted"})
            self.write()

    def report_training(self, step: int, steps: int, loss: float | None = None, speed: float | None = None) -> None:
        """Note that ``step`` of ``steps`` optimiser steps are done; the next beat writes it.

        ``loss`` is the training loss of the step, ``speed`` in steps per second; None leaves what was noted before.
        """
        began = self.beat.state != "training"
        known = {name: value for name, value in {"loss": loss, "speed": speed}.items() if value is not None}
        self.beat = self.beat.model_copy(update={"state": "training", "step": step, "steps": steps, **known})
        if began:
            self.write()

    def report_evaluating(self) -> None:
        """Write that the run is evaluating on the dev set."""
        self.beat = self.beat.model_copy(update={"state": "evaluating"})
        self.write()

    def write(self) -> None:
        """Write the file, with the time. A full disk is passed over: writing the record will report it."""
        with self._lock, contextlib.suppress(OSError):
            content = json.loads(self.beat.model_copy(update={"updated": time.time()}).model_dump_json())
            write_text(self.file, json.dumps(add_json_checksum(content, self.file.parent.name)), flush=False)

    def _beat_until_stopped(self) -> None:
        while not self._stop.wait(environment.read_beat_seconds() or BEAT_INTERVAL):
            self.write()


def describe_process() -> Where:
    """Return host, job and log of this process, and how many runs share its device, as far as a launcher told."""
    return Where(
        host=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        machine=socket.gethostname(),
        job=environment.read_job(),
        log=environment.read_log(),
        share=environment.read_device_share(),
    )


def read_heartbeat(folder: Path) -> Beat | None:
    """Read the last beat of a run; None if there is none or it is damaged."""
    try:
        return Beat.model_validate(read_json(folder / PROGRESS_FILE, owner=folder.name))
    except (OSError, ValueError):
        return None


def is_alive(beat: Beat, folder: Path) -> bool:
    """Return True if a run is still going: its beat is fresh and, on this machine, its process exists.

    The clock of another machine may be wrong. Its beat counts as fresh too if the file's own time is, which the file
    server sets. A time in the future by more than STALE_AFTER is as old as one in the past.

    Args:
        beat: the run's last beat.
        folder: the run's folder.
    """
    if beat.state == "interrupted":
        return False
    if beat.machine == socket.gethostname():
        return is_fresh(beat.updated) and is_process_alive(beat.pid)
    return is_fresh(beat.updated) or is_fresh(read_file_time(folder / PROGRESS_FILE))


def is_fresh(moment: float) -> bool:
    """Return True if a moment, in seconds since 1970, is less than STALE_AFTER away from now."""
    return abs(time.time() - moment) <= STALE_AFTER


def read_live_heartbeat(folder: Path) -> Beat | None:
    """Read the last beat of a run that is still going, else return None."""
    beat = read_heartbeat(folder)
    return beat if beat is not None and is_alive(beat, folder) else None


def is_process_alive(pid: int) -> bool:
    """Return True if a process of this machine exists and is no zombie."""
    try:
        os.kill(pid, 0)  # psutil does not see other users' processes where the system hides them
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
    except (PermissionError, psutil.AccessDenied):  # another user's
        return True


def wait_for_beat(folder: Path) -> bool:
    """Wait for longer than the time between beats: True as soon as the run beats again or ends, else False."""
    first = read_heartbeat(folder)
    deadline = time.monotonic() + 2.5 * BEAT_INTERVAL
    while time.monotonic() < deadline:
        time.sleep(1)
        if read_heartbeat(folder) != first:
            return True
    return False
