"""Write files and folders under temporary names, and rename them only when they are whole.

A process locks its temporary file or folder (``flock``) while it works on it. The system frees the locks of a killed
process. So an unlocked one was abandoned, and the next process that writes the same file or folder removes it.
"""

import contextlib
import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def make_temporary_file(path: Path) -> Iterator[Path]:
    """Make a new empty file in the folder of ``path``, for the caller to write and then rename to ``path``.

    The context removes the file at its end if it has not been renamed. Write into this very file: another file moved
    to its name would not be locked.
    """
    remove_abandoned(path.parent, path.name)
    while True:
        temporary = choose_name(path)
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        if lock_temporary(temporary, handle):
            break
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def make_temporary_folder(path: Path) -> Iterator[Path]:
    """Make a new empty folder beside ``path``, for the caller to fill and then rename to ``path``.

    The context removes the folder at its end if it has not been renamed.
    """
    remove_abandoned(path.parent, path.name)
    while True:
        temporary = choose_name(path)
        temporary.mkdir()
        handle = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        if lock_temporary(temporary, handle):
            break
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(handle)


def choose_name(path: Path) -> Path:
    """Choose the path of a new temporary file or folder that is to become ``path``."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def lock_temporary(temporary: Path, handle: int) -> bool:
    """Lock a new temporary file or folder, open as ``handle``.

    Another process may find it before it is locked, take it for abandoned and remove it. Then the handle is closed,
    and False is returned. On a file system without locks it stays unlocked, and nobody removes it.
    """
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    if temporary.exists():
        return True
    os.close(handle)
    return False


def remove_abandoned(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files and folders of killed processes from a folder; those of living ones stay.

    Args:
        folder: where to look; its subfolders are left alone.
        name: the final name of the file or folder that they were made for; None removes those of any name.
    """
    for path in folder.glob(f".{'*' if name is None else glob.escape(name)}.*.tmp"):
        with contextlib.suppress(OSError):  # it is locked, it is gone, or the file system has no locks
            is_folder = path.is_dir() and not path.is_symlink()
            flags = os.O_RDONLY if is_folder else os.O_RDWR
            handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_folder:
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
            finally:
                os.close(handle)
