"""Put a finished folder in the place of an earlier one, so that a reader always sees one of the two, whole."""

import contextlib
import ctypes
import os
import sys
from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's system call renameat2


def replace_folder(new: Path, old: Path) -> None:
    """Rename the folder ``new`` to ``old``; what was in ``old`` is then in ``new``, if there was something.

    Where the system can't exchange two folders in one step, ``old`` is missing for a moment between two renames.

    Raises:
        OSError: a folder can't be renamed.
    """
    flush_files(new)
    if not old.exists() or not any(old.iterdir()):
        new.replace(old)
        return
    if exchange(new, old):
        return
    aside = new.with_name(f"{new.name}.old")
    old.rename(aside)
    try:
        new.rename(old)
    except OSError:
        aside.rename(old)
        raise
    with contextlib.suppress(OSError):
        aside.rename(new)


def flush_files(folder: Path) -> None:
    """Wait until every file in a folder is on the disk, so that a power cut after a renaming loses nothing."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def exchange(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; return False where the system or the file system has no such call."""
    call = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    paths = (AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second))
    return call is not None and call(*paths, RENAME_EXCHANGE) == 0
