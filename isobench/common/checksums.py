"""Files that end with a checksum of their content, so that a changed byte is noticed when they are read.

The checksum is the sha256 of the file's name and of the content before it, 32 bytes at the file's end. The name is in
it so that a copy under another name is noticed too.
"""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKSUM_BYTES = 32
CHUNK_BYTES = 1 << 20  # read at once
MISMATCH = "its checksum is not that of its content"


def with_checksum(write: Callable[[Path], Any], name: str) -> Callable[[Path], None]:
    """Extend a function that writes a file, so that it ends the file with the checksum.

    Args:
        write: writes the content to the path that it is called with, which may be a temporary one.
        name: the name that the file will have.
    """

    def write_content_and_checksum(path: Path) -> None:
        write(path)
        checksum = compute_checksum(path, name, path.stat().st_size)
        with path.open("ab") as file:
            file.write(checksum)

    return write_content_and_checksum


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
