"""Files that are written whole or not at all, hashes of files, and errors of the disk."""

import contextlib
import errno
import functools
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from isobench.common.errors import StorageError, UserError
from isobench.common.reading import require_regular_file
from isobench.common.temporaries import make_temporary_file

PROBE_BYTES = 1 << 20  # more than what a library may have left unwritten when a disk was full


def cache_dir(configured: str | None) -> Path:
    """Return the folder for tokenised data and converted weights: ``data.cache`` if set, else the user's cache."""
    return Path(configured or platformdirs.user_cache_dir("isobench"))


def refuse_file(setting: str, path: str | Path) -> None:
    """Raise UserError unless the path that a setting names is a folder or doesn't exist yet."""
    try:
        exists = Path(path).exists()
    except OSError as error:  # a name that is too long
        raise UserError(f"{setting}={str(path)[:60]}...: {name_system_error(error)}: name another folder") from error
    if exists and not Path(path).is_dir():
        raise UserError(f"{setting}={path} is a file: name a folder")
    if not exists and Path(path).is_symlink():
        raise UserError(f"{setting}={path} is a link to what does not exist: remove it, or name another folder")


def sha256_file(path: Path) -> str:
    """Compute the hex sha256 of a file; a file that has not changed since this process read it is not read again.

    A change is noticed by ``ctime``: every write changes it, and no program can set it back.

    Raises:
        UserError: it can't be read, or is no regular file, such as a pipe, which may never end.
    """
    require_regular_file(path)
    try:
        stat = path.stat()
        return _sha256(
            str(path.resolve()), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
        )
    except PermissionError as error:
        raise UserError(
            f"{path} can't be read: {name_system_error(error)}; ask its owner to let you read it"
        ) from error


@functools.lru_cache(maxsize=4096)
def _sha256(path: str, *version: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Compute the hex sha256 of a JSON value, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def shorten_digest(digest: str) -> str:
    """Return the first 16 hex digits of a digest, which are enough to tell names apart."""
    return digest[:16]


def write_atomic(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file so that a reader, even after a crash, sees all of it or none.

    Args:
        path: the file.
        write: called with a temporary file in the same folder, which is then flushed to disk and renamed to ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with make_temporary_file(path) as temporary:
        with explain_disk_errors(temporary):
            write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def explain_disk_errors(file: Path) -> Iterator[None]:
    """A context for code that writes ``file``: what it raises because of the disk becomes an OSError that says why.

    When a disk is full, torch, safetensors and tokenizers raise errors of their own, and NumPy an OSError without a
    number. After such an error, this appends some bytes to the file, and the system's own error tells the reason.

    Raises:
        OSError: the disk is full or can't be written for another reason.
    """
    try:
        yield
    except Exception as error:
        has_number = isinstance(error, OSError) and error.errno is not None
        if not has_number and file.exists():
            _append_zeros(file)
        raise


def _append_zeros(file: Path) -> None:
    """Append PROBE_BYTES zeros to a file; OSError if the disk has no room for them."""
    with file.open("ab") as stream:
        stream.write(bytes(PROBE_BYTES))
        stream.flush()
        os.fsync(stream.fileno())


def write_cached(path: Path, write: Callable[[Path], Any], what: str = "cache") -> None:
    """Write a file of the cache as ``write_atomic`` does.

    Args:
        path: the file.
        write: as in ``write_atomic``.
        what: what the file's folder is called in the error message.

    Raises:
        StorageError: if it can't be written.
    """
    try:
        write_atomic(path, write)
    except OSError as error:
        raise make_cache_error(error, path.parent, what) from error


def replace_text(path: Path, text: str) -> None:
    """Replace a small file in one step: faster than ``write_atomic``, but a power cut may lose it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_file_time(file: Path) -> float:
    """Return when a file was last written, in seconds since 1970; 0 if it is missing."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def remove_temporaries(folder: Path) -> None:
    """Remove the temporary files that a killed process left in a folder and its subfolders.

    Call it only while no other process writes there.
    """
    for file in [*folder.glob(".*.tmp"), *folder.glob("*/.*.tmp")]:
        file.unlink(missing_ok=True)


def name_system_error(error: OSError) -> str:
    """Return the system's words for an error, such as ``no space left on device``, whoever raised it."""
    return (os.strerror(error.errno) if error.errno else str(error)).lower()


def make_storage_error(error: OSError, path: Path) -> StorageError:
    """Make the error that tells the user why results can't be written to ``path``."""
    reason = name_system_error(error)
    return StorageError(
        f"{path} can't be written: {reason}; make room or set output_dir=FOLDER (earlier results are intact)"
    )


def make_cache_error(error: OSError, folder: Path, what: str = "cache") -> StorageError:
    """Make the error that tells the user why a folder of the cache can't be written.

    It stops a sweep, because its other runs need the same cache.
    """
    reason = name_system_error(error)
    return StorageError(f"the {what} {folder} can't be written: {reason}; make room or set data.cache=FOLDER")


@contextmanager
def require_writable(folder: Path) -> Iterator[None]:
    """A context that makes a folder and checks that it can be written, before any work is done for it.

    If the work fails, those of the folders it made that are still empty are removed.

    Raises:
        StorageError: if the folder can't be made or written.
    """
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise make_storage_error(error, folder) from error
    try:
        yield
    except BaseException:
        for path in new_folders:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def is_storage_error(error: BaseException) -> bool:
    """Return True if an error comes from the disk: full, read-only, over quota or a size limit, no permission."""
    errors = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM)
    return isinstance(error, OSError) and error.errno in errors


def write_json(path: Path, value: Any) -> None:
    """Write a value as strict JSON (without NaN), whole or not at all."""
    text = json.dumps(value, indent=1, allow_nan=False)
    write_atomic(path, lambda temporary: temporary.write_text(text + "\n"))


def replace_non_finite(value: Any) -> Any:
    """Copy a value with None in place of NaN and infinities, which JSON can't express."""
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
