"""Files: written whole or not at all, read within limits, with checksums; and what the user is told of the disk.

A file that others may have made is read only if it is a regular file, and only up to a size that it can have: opening
a named pipe waits for a writer, maybe for ever, and a device may never end.

Checksums let a reader notice a changed byte. A binary file ends with 32 bytes: the sha256 of its name and of the
content before them. The name is included, so that a copy under another name is noticed too. A JSON object has an
entry ``checksum``. A text ends with a line that holds its checksum. Both may include an ``owner``, such as a run's
key, so that exchanged files are noticed.
"""

import contextlib
import errno
import functools
import glob
import hashlib
import io
import json
import math
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import orjson
import platformdirs

from isobench.common.errors import StorageError, refuse

T = TypeVar("T")

BUNDLE_FILE, BUNDLE_PLAN = "bundle.json", "plan.json"  # in a bundle
MEBIBYTE = 2**20
SETTINGS_LIMIT = MEBIBYTE  # bytes of a file of settings: a config, a remembered command, a heartbeat
RECORD_LIMIT = 256 * MEBIBYTE  # bytes of a file with results: a record, an analysis's about.json
CHUNK_BYTES = MEBIBYTE  # read at once

ABANDONED_SECONDS = 24 * 3600  # a temporary file that nobody wrote to for so long is a killed process's
PROBE_BYTES = MEBIBYTE  # more than what a library may have left unwritten when a disk was full

UNWRITABLE = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM)
FAILING = tuple(  # of a disk or a file server, also while it is read: they say nothing about a file
    getattr(errno, name)
    for name in ("EIO", "ESTALE", "ENOTCONN", "ETIMEDOUT", "EHOSTDOWN", "EREMOTEIO")
    if hasattr(errno, name)  # macOS lacks the last
)

CHECKSUM_BYTES = 32
JSON_ENTRY = "checksum"
MISMATCH = "its checksum is not that of its content"


class UnfitFileError(OSError):
    """A file that is read is no regular file, or too large; other OSErrors may pass, and say nothing about it."""


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading; raise UnfitFileError if it is no regular file, such as a pipe."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without waiting for a pipe's writer
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnfitFileError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


def read_bounded(path: Path, limit: int = SETTINGS_LIMIT) -> bytes:
    """Read a whole file; raise UnfitFileError if it is no regular file or exceeds ``limit`` bytes."""
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UnfitFileError(errno.EFBIG, f"larger than {limit / MEBIBYTE:g} MiB", str(path))
    return content


def cache_dir(configured: str | None) -> Path:
    """Return the folder for tokenised data and converted weights: ``data.cache`` if set, else the user's cache."""
    return Path(configured or platformdirs.user_cache_dir("isobench"))


def refuse_bundle(path: Path) -> None:
    """Raise UserError if a path is a file, or is a bundle or lies in one: what is written there would break it."""
    refuse((path.is_file(), f"{path} is a file: name a folder"))
    for folder in (path.resolve(), *path.resolve().parents):
        is_bundle = (folder / BUNDLE_FILE).is_file() and (folder / BUNDLE_PLAN).is_file()
        refuse((is_bundle, f"{path} is or lies in the bundle {folder}: name another folder"))


def cache_until_changed(function: Callable[..., T], limit: int | None = None) -> Callable[..., T]:
    """Make a function of a file, and of hashable arguments, remember what it returned until the file changes.

    A change is noticed by ``ctime``: every write changes it, and no program can set it back. ``limit``: how many
    answers are kept, all if None.
    """

    @functools.lru_cache(limit)
    def remember(file: Path, version: tuple[int, ...], *arguments: Any) -> T:
        return function(file, *arguments)

    @functools.wraps(function)
    def call(file: Path, *arguments: Any) -> T:
        info = file.stat() if file.exists() else None
        version = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns) if info else ()
        return remember(file, version, *arguments)

    return call


def sha256_file(path: Path) -> str:
    """Compute the hex sha256 of a file; one that has not changed since this process read it is not read again."""
    return _sha256(path.absolute())


@functools.partial(cache_until_changed, limit=4096)
def _sha256(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Compute the hex sha256 of a JSON value, independent of the order of keys."""
    return hashlib.sha256(format_sorted_json(value).encode()).hexdigest()


def format_sorted_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def shorten_digest(digest: str) -> str:
    """Return the first 16 hex digits of a digest, which are enough to tell names apart."""
    return digest[:16]


@contextmanager
def write_whole(path: Path, flush: bool = True) -> Iterator[Path]:
    """A context that writes a file, or a folder, so that a reader, even after a crash, sees all of it or none.

    The caller writes a temporary path in the same folder, which is renamed to ``path`` at the end. After an error
    nothing is left behind. Without ``flush`` it is faster, and a power cut may lose the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _make_temporary(path) as temporary:
        with explain_disk_errors(temporary):
            yield temporary
        if flush:
            _flush(temporary)
        temporary.replace(path)
        if flush:
            _flush(path.parent)


def write_text(path: Path, text: str, flush: bool = True) -> None:
    with write_whole(path, flush) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def _make_temporary(path: Path) -> Iterator[Path]:
    """A context with a path beside ``path``, for a file or folder to make there and rename; else it is removed."""
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if time.time() - read_file_time(old) > ABANDONED_SECONDS:
            remove_path(old)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
    finally:
        remove_path(temporary)


@contextmanager
def make_temporary_folder(path: Path) -> Iterator[Path]:
    """A context with a new empty folder beside ``path``, to rename before the end; else it is removed."""
    with _make_temporary(path) as temporary:
        temporary.mkdir()
        yield temporary


def remove_path(path: Path) -> None:
    """Remove a file, a link or as much as possible of a folder, if it is there."""
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
    """Remove the temporary files that a killed process left in a folder, to which no other process writes now."""
    for file in [*folder.glob(".*.tmp"), *folder.glob("*/.*.tmp")]:
        file.unlink(missing_ok=True)


def name_system_error(error: Exception) -> str:
    """Return the system's words for an error, such as ``no space left on device``, whoever raised it."""
    number = getattr(error, "errno", None)
    return (os.strerror(number) if number else str(error)).lower()


def make_storage_error(error: Exception, path: Path, setting: str = "output_dir") -> StorageError:
    """Make the error for a disk or a file server that fails to keep a file below ``path``, which a setting names."""
    advice = f"make room or set {setting}=FOLDER, and repeat the command (earlier results are intact)"
    file = getattr(error, "filename", None) or path
    return StorageError(f"{file} can't be read or written: {name_system_error(error)}; {advice}")


@contextmanager
def explain_output_errors(path: Path, setting: str = "output_dir") -> Iterator[None]:
    """A context for code that writes below the folder of a setting: an OSError becomes a StorageError."""
    try:
        yield
    except OSError as error:
        raise make_storage_error(error, path, setting) from error


explain_cache_errors = functools.partial(explain_output_errors, setting="data.cache")


@contextmanager
def require_writable(folder: Path) -> Iterator[None]:
    """A context that makes a folder and checks that it can be written, before any work is done for it.

    If the work fails, those of the folders it made that are still empty are removed. UserError in a bundle.
    """
    refuse_bundle(folder)
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    with explain_output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    try:
        yield
    except BaseException:
        for path in new_folders:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def is_storage_error(error: BaseException, kinds: Collection[int] = (*UNWRITABLE, *FAILING)) -> bool:
    """Return True if an error comes from a disk or a file server: no room, no permission, or it fails."""
    return isinstance(error, OSError) and error.errno in kinds


def write_json(path: Path, content: dict[str, Any], owner: str = "", flush: bool = True) -> None:
    write_text(path, json.dumps(add_json_checksum(content, owner), indent=1, allow_nan=False) + "\n", flush)


def replace_non_finite(value: Any) -> Any:
    """Copy a value with None in place of NaN and infinities, which JSON can't express."""
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def write_cached(path: Path) -> Iterator[Path]:
    """A context that writes a file of the cache as ``write_whole`` does, and ends it with its checksum."""
    with explain_cache_errors(path.parent), write_whole(path) as temporary:
        yield temporary
        append_checksum(temporary, path.name)


def append_checksum(path: Path, name: str) -> None:
    """End a binary file with its checksum; ``name`` is the one that the file will have."""
    checksum = _compute_checksum(path, name, path.stat().st_size)
    with path.open("ab") as file:
        file.write(checksum)


def require_checksum(path: Path) -> None:
    """Raise ValueError if a file is damaged, was written under another name, or ends without its checksum."""
    size = path.stat().st_size - CHECKSUM_BYTES
    with open_regular(path) as file:
        file.seek(max(size, 0))
        expected = file.read()
    if size < 0 or _compute_checksum(path, path.name, size) != expected:
        raise ValueError(MISMATCH)


def read_checksummed(path: Path) -> bytes:
    """Check a file as `require_checksum` does, and return the content before its checksum."""
    require_checksum(path)
    return path.read_bytes()[:-CHECKSUM_BYTES]


def add_json_checksum(content: dict[str, Any], owner: str = "") -> dict[str, Any]:
    """Return a JSON object with an entry ``checksum``, which is computed from its other entries and ``owner``."""
    return {**content, JSON_ENTRY: sha256_json([owner, content])}


def read_json(file: Path, limit: int = SETTINGS_LIMIT, owner: str = "") -> dict[str, Any]:
    """Read what ``write_json`` wrote; OSError for a file that can't be read, ValueError for one that was changed."""
    return drop_json_checksum(orjson.loads(read_bounded(file, limit)), owner)


def drop_json_checksum(content: Any, owner: str = "") -> dict[str, Any]:
    """Return a JSON object without its entry ``checksum``; raise ValueError if it lacks one or was changed."""
    if not isinstance(content, dict) or JSON_ENTRY not in content:
        raise ValueError("it is no JSON object with a checksum")
    others = {name: value for name, value in content.items() if name != JSON_ENTRY}
    if content[JSON_ENTRY] != sha256_json([owner, others]):
        raise ValueError(MISMATCH)
    return others


def _compute_checksum(path: Path, name: str, size: int) -> bytes:
    """Compute the sha256 of a name and of the first ``size`` bytes of a file."""
    digest = hashlib.sha256(name.encode())
    with open_regular(path) as file:
        while size > 0 and (chunk := file.read(min(size, CHUNK_BYTES))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.digest()


def print_remaking(path: Path) -> None:
    print(f"isobench: {path} is damaged or can't be read: it is made again", file=sys.stderr)
