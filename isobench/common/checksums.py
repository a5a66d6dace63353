"""Add checksums to files, so that a changed byte is noticed when they are read.

A binary file ends with 32 bytes: the sha256 of its name and of the content before them. The name is included, so that
a copy under another name is noticed too. A JSON object has an entry ``checksum``. A text ends with a line that holds
its checksum.
"""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from isobench.common.files import make_cache_error, sha256_json, write_whole
from isobench.common.reading import SETTINGS_LIMIT, read_bounded

CHECKSUM_BYTES = 32
CHUNK_BYTES = 1 << 20  # read at once
MISMATCH = "its checksum is not that of its content"
JSON_ENTRY = "checksum"
TEXT_LINE = "# checksum: "  # a comment in YAML


@contextmanager
def write_cached(path: Path, what: str = "cache") -> Iterator[Path]:
    """A context that writes a file of the cache as ``write_whole`` does, and ends it with its checksum.

    Args:
        path: the file.
        what: what the file's folder is called in the error message.

    Raises:
        StorageError: it can't be written.
    """
    try:
        with write_whole(path) as temporary:
            yield temporary
            append_checksum(temporary, path.name)
    except OSError as error:
        raise make_cache_error(error, path.parent, what) from error


def append_checksum(path: Path, name: str) -> None:
    """End a binary file with its checksum; ``name`` is the one that the file will have."""
    checksum = compute_checksum(path, name, path.stat().st_size)
    with path.open("ab") as file:
        file.write(checksum)


def require_checksum(path: Path) -> None:
    """Read a file that ends with its checksum, and compare the two.

    Raises:
        ValueError: the file is damaged, has another name than it was written under, or ends without a checksum.
        OSError: it can't be read.
    """
    size = path.stat().st_size - CHECKSUM_BYTES
    with path.open("rb") as file:
        file.seek(max(size, 0))
        expected = file.read()
    if size < 0 or compute_checksum(path, path.name, size) != expected:
        raise ValueError(MISMATCH)


def read_checksummed(path: Path) -> bytes:
    """Read a file that ends with its checksum, and return the content before it.

    Raises:
        ValueError, OSError: as ``require_checksum``.
    """
    require_checksum(path)
    return path.read_bytes()[:-CHECKSUM_BYTES]


def add_json_checksum(content: dict[str, Any], owner: str = "") -> dict[str, Any]:
    """Return a JSON object with an entry ``checksum``, which is computed from its other entries.

    Args:
        content: the object.
        owner: what it belongs to, such as a run's key: part of the checksum, so that exchanged files are noticed.
    """
    return {**content, JSON_ENTRY: sha256_json([owner, content])}


def read_json(file: Path, limit: int = SETTINGS_LIMIT, owner: str = "") -> Any:
    """Read a JSON file, compare its entry ``checksum``, and return its content without this entry.

    Earlier versions wrote no checksum. Content without one is returned as it is.

    Args:
        file: the file.
        limit: how many bytes it may have.
        owner: as in ``add_json_checksum``.

    Raises:
        OSError: the file is missing, can't be read, or is larger than ``limit`` bytes.
        ValueError: it is no JSON, or the entry is not the checksum of the others.
    """
    content = orjson.loads(read_bounded(file, limit))
    if not isinstance(content, dict) or JSON_ENTRY not in content:
        return content
    return drop_json_checksum(content, owner)


def drop_json_checksum(content: Any, owner: str = "") -> dict[str, Any]:
    """Compare the entry ``checksum`` of a JSON object with its other entries, and return these.

    Args:
        content: what a JSON file held.
        owner: as in ``add_json_checksum``.

    Raises:
        ValueError: it is no object, has no such entry, or was changed.
    """
    if not isinstance(content, dict) or JSON_ENTRY not in content:
        raise ValueError("it is no JSON object with a checksum")
    others = {name: value for name, value in content.items() if name != JSON_ENTRY}
    if content[JSON_ENTRY] != sha256_json([owner, others]):
        raise ValueError(MISMATCH)
    return others


def add_text_checksum(text: str, owner: str) -> str:
    """Return a text with one more line: a comment with the text's checksum.

    Args:
        text: it must end with a line break.
        owner: what it belongs to, such as a run's key: part of the checksum, so that exchanged files are noticed.
    """
    digest = hashlib.sha256(f"{owner}\n{text}".encode()).hexdigest()
    return f"{text}{TEXT_LINE}{digest}\n"


def check_text_checksum(text: str, owner: str) -> str:
    """Return a text without the line of its checksum; a text of an earlier version has none, and is accepted.

    Raises:
        ValueError: the line is not the last one, or is not the checksum of the text before it.
    """
    content, line, _ = text.rpartition(f"\n{TEXT_LINE}")
    if not line:
        return text
    if add_text_checksum(f"{content}\n", owner) != text:
        raise ValueError(MISMATCH)
    return f"{content}\n"


def compute_checksum(path: Path, name: str, size: int) -> bytes:
    """Compute the sha256 of a name and of the first ``size`` bytes of a file."""
    digest = hashlib.sha256(name.encode())
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(size, CHUNK_BYTES))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.digest()


def print_remaking(path: Path) -> None:
    """Tell the user that a cached file is made again, because it can't be used."""
    print(f"isobench: {path} is damaged or can't be read: it is made again", file=sys.stderr)
