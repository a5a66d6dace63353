"""Read files that others may have made: only regular files, and only up to a size that such a file can have.

Opening a named pipe waits for a writer, maybe for ever, and a device may never end. So a file's kind is looked at
before anything is read from it.
"""

import errno
import os
import stat
from pathlib import Path

from isobench.common.errors import UserError

MEBIBYTE = 2**20
SETTINGS_LIMIT = MEBIBYTE  # bytes of a file of settings: a config, a remembered command, a heartbeat
RECORD_LIMIT = 256 * MEBIBYTE  # bytes of a file with results: a record, an analysis's about.json


def read_bounded(path: Path, limit: int = SETTINGS_LIMIT) -> bytes:
    """Read a whole file of at most ``limit`` bytes.

    Raises:
        OSError: the file can't be read, is no regular file (a pipe, a device, a folder), or is larger.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without waiting for a pipe's writer
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with os.fdopen(handle, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit / MEBIBYTE:g} MiB", str(path))
    return content


def require_regular_file(path: Path) -> None:
    """Raise UserError if a path is a pipe, a device, a socket or a broken link; a folder or a missing file may pass.

    Call it before a library opens the file.
    """
    if os.path.lexists(path) and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path} is not a regular file but a pipe, a device or a broken link: remove or replace it")
