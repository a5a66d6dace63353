"""Small file helpers shared by the caches and the run record."""

import contextlib
import errno
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from isobench.common.errors import StorageError, UserError


def cache_dir(configured: str | None) -> Path:
    """Folder for tokenised data and converted weights (``data.cache``, else the user's cache folder)."""
    return Path(configured or platformdirs.user_cache_dir("isobench"))


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes; a file unchanged since the last call in this process is not read twice."""
    stat = path.stat()
    return _sha256(str(path.resolve()), stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _sha256(path: str, size: int, mtime_ns: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Hex sha256 of a JSON value, independent of key order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def shorten_digest(digest: str) -> str:
    """The first 16 hex digits of a digest: short enough for a name, long enough to tell two names apart."""
    return digest[:16]


def write_atomic(path: Path, write: Callable[[Path], Any]) -> None:
    """Call ``write`` on a temporary neighbour of ``path``, then flush it to disk and rename it into place.

    A reader sees the whole file or none, whatever happens in between.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_read_umask())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def write_cached(path: Path, write: Callable[[Path], Any], what: str = "cache") -> None:
    """``write_atomic`` of a file in the cache.

    Raises:
        UserError: it can't be written there.
    """
    try:
        write_atomic(path, write)
    except OSError as error:
        raise UserError(f"the {what} {path.parent} can't be written: {error.strerror}; set data.cache") from error


def replace_text(path: Path, text: str) -> None:
    """Replace a small file in one step; quicker than ``write_atomic``, and lost in a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_temporaries(folder: Path, name: str = "") -> None:
    """Remove what a killed process left half-written, of all files or one, in a folder that is ours alone now."""
    for file in [*folder.glob(f".{name}*.tmp"), *folder.glob(f"*/.{name}*.tmp")]:
        file.unlink(missing_ok=True)


def make_storage_error(error: OSError, path: Path) -> StorageError:
    """What to tell the user if results can't be written."""
    reason = (error.strerror or str(error)).lower()
    return StorageError(
        f"{path} can't be written: {reason}; make room or set output_dir=FOLDER (earlier results are intact)"
    )


@contextmanager
def require_writable(folder: Path) -> Iterator[None]:
    """Make sure before any work that a folder can be written; if the work fails, nothing is left of making sure.

    Raises:
        StorageError: it can't.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise make_storage_error(error, folder) from error
    try:
        yield
    except BaseException:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def is_storage_error(error: BaseException) -> bool:
    """True if the disk, not the program, is the trouble: full, read-only, over quota, forbidden."""
    errors = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EPERM)
    return isinstance(error, OSError) and error.errno in errors


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (no NaN) atomically."""
    text = json.dumps(value, indent=1, allow_nan=False)
    write_atomic(path, lambda temporary: temporary.write_text(text + "\n"))


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
