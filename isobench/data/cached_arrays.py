"""Keep arrays in the cache as safetensors files, each with a checksum that is compared when it is read."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from safetensors.numpy import load_file, save

from isobench.common.checksums import MISMATCH, print_remaking
from isobench.common.files import write_cached
from isobench.common.temporaries import remove_abandoned

T = TypeVar("T")
CHECKSUM = "sha256"  # the name of the array that holds the checksum of the others, 32 bytes


def save_cached_arrays(arrays: Mapping[str, np.ndarray], file: Path) -> None:
    """Write arrays to the cache, whole or not at all; StorageError if it can't be written.

    Args:
        arrays: name -> array of any shape.
        file: the file to write. Its name is part of the checksum, so a copy under another name is not used.
    """
    checksum = np.frombuffer(compute_array_checksum(arrays, file.name), np.uint8)
    # safetensors' save_file would replace the locked temporary file by another file, which is not locked.
    content = save({**arrays, CHECKSUM: checksum})
    write_cached(file, lambda temporary: temporary.write_bytes(content), "token cache")


def load_cached_arrays(file: Path, build: Callable[[dict[str, np.ndarray]], T]) -> T | None:
    """Build an object from a cached file's arrays, by name.

    Returns None if the file is missing, and if it is damaged, after a line that says so.
    """
    if not file.exists():
        return None
    remove_abandoned(file.parent, file.name)  # a killed process may have left one while another process was faster
    try:
        arrays = load_file(file)
        if arrays.pop(CHECKSUM).tobytes() != compute_array_checksum(arrays, file.name):
            raise ValueError(MISMATCH)
        return build(arrays)
    except MemoryError:
        raise  # says nothing about the file
    except Exception:  # safetensors has errors of its own for a truncated or foreign file
        print_remaking(file)
        return None


def compute_array_checksum(arrays: Mapping[str, np.ndarray], name: str) -> bytes:
    """Compute the sha256 of a file's name, and of its arrays' names, types, shapes and values."""
    digest = hashlib.sha256(name.encode())
    for array_name in sorted(arrays):
        array = np.ascontiguousarray(arrays[array_name])
        digest.update(f"\n{array_name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes() if array.size == 0 else array.data)
    return digest.digest()
