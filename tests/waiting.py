"""Wait for what happens elsewhere, for as long as it goes on: a slow machine makes no test fail."""

import contextlib
import os
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

PATIENCE = 300  # seconds without any progress; pytest's own limit ends what goes on for ever


def wait_until(
    condition: Callable[[], Any], what: str = "", progress: Callable[[], Any] = lambda: None, pause: float = 0.02
) -> Any:
    """Wait until a condition holds, and return its value; fail after PATIENCE seconds in which nothing changed.

    ``progress`` tells how far that is which is waited for. ``what`` says in the failure what did not come about.
    """
    seen, since = None, time.monotonic()
    while not (value := condition()):
        if (now := progress()) != seen:
            seen, since = now, time.monotonic()
        assert time.monotonic() - since < PATIENCE, f"waited in vain until {what or condition}: {seen}"
        time.sleep(pause)
    return value


def watch_folder(folder: Path) -> Callable[[], Any]:
    """Return a function that tells when anything in a folder was written last: runs renew their heartbeats there."""

    def tell() -> float:
        paths = (Path(place, name) for place, *names in os.walk(folder) for name in chain(*names))
        times = [0.0]
        for path in paths:  # os.walk passes over folders that are removed meanwhile
            with contextlib.suppress(FileNotFoundError):
                times.append(path.stat().st_mtime)
        return max(times)

    return tell


def wait_for_end(process: Any, folder: Path) -> int:
    """Wait for the end of a process of multiprocessing, whose runs write into a folder; return its exit code."""
    try:
        wait_until(lambda: not process.is_alive(), f"{process} has ended", watch_folder(folder))
    finally:
        process.kill()
    return process.exitcode
