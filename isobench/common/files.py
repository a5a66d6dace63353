"""Files that are written whole or not at all, hashes of files, and errors of the disk."""

import contextlib
import errno
import functools
import glob
import hashlib
import json
import math
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from isobench.common.errors import StorageError, UserError
from isobench.common.reading import require_regular_file

ABANDONED_SECONDS = 24 * 3600  # a temporary file that nobody wrote to for so long is a killed process's
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


@contextmanager
def write_whole(path: Path, flush: bool = True) -> Iterator[Path]:
    """A context that writes a file, or a folder, so that a reader, even after a crash, sees all of it or none.

    It gives a temporary path in the same folder for the caller to write, and renames it to ``path`` at the end.

    Args:
        path: the file.
        flush: write it to the disk before the renaming; without that it is faster, and a power cut may lose it.

    Raises:
        OSError: the disk is full or can't be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with make_temporary(path) as temporary:
        with explain_disk_errors(temporary):
            yield temporary
        if flush:
            _flush(temporary)
        temporary.replace(path)
        if flush:
            _flush(path.parent)


def write_text(path: Path, text: str, flush: bool = True) -> None:
    """Write a text in UTF-8 as ``write_whole`` writes a file."""
    with write_whole(path, flush) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def make_temporary(path: Path) -> Iterator[Path]:
    """A context with a path beside ``path``, for a file or folder to make there and rename; else it is removed.

    What a killed process left a day ago for the same ``path`` is removed, too.
    """
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if time.time() - read_file_time(old) > ABANDONED_SECONDS:
            _remove(old)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
    finally:
        _remove(temporary)


@contextmanager
def make_temporary_folder(path: Path) -> Iterator[Path]:
    """A context with a new empty folder beside ``path``, as of ``make_temporary``."""
    with make_temporary(path) as temporary:
        temporary.mkdir()
        yield temporary


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def explain_disk_errors(file: Path) -> Iterator[None]:
    """A context for code that writes ``file``: what it raises because of the disk becomes an OSError that says why.

    When a disk is full, torch, safetensors and tokenizers raise errors of their own, and NumPy an OSError without a
    number. After such an error, this writes some bytes into the folder, and the system's own error tells the reason.

    Raises:
        OSError: the disk is full or can't be written for another reason.
    """
    try:
        yield
    except Exception as error:
        if not (isinstance(error, OSError) and error.errno is not None):
            with tempfile.TemporaryFile(dir=file if file.is_dir() else file.parent) as stream:
                stream.write(bytes(PROBE_BYTES))
                stream.flush()
                os.fsync(stream.fileno())
        raise


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
    write_text(path, text + "\n")


def replace_non_finite(value: Any) -> Any:
    """Copy a value with None in place of NaN and infinities, which JSON can't express."""
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
