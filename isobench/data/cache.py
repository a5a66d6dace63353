"""Files and folders that are kept in ``data.cache`` with checksums, and made again when they are damaged."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from isobench.common.checksums import MISMATCH, print_remaking
from isobench.common.files import sha256_file, write_cached
from isobench.common.temporaries import make_temporary_folder, remove_abandoned

T = TypeVar("T")
CHECKSUM = "sha256"  # the name of the array that holds the checksum of the others, 32 bytes
SUMS_FILE = "sums.json"  # in the folder: the sha256 of each of its other files


def make_checked_folder(target: Path, write: Callable[[Path], Any]) -> Path:
    """Return ``target``, a folder that is made on the first call.

    A folder with a file that is not as it was written is made again, after a line that says so. The folder
    appears whole or not at all, also if several processes make it at the same time.

    Args:
        target: the folder.
        write: writes the folder's files into the empty folder that it is called with.

    Raises:
        OSError: the folder can't be written.
    """
    if is_intact_folder(target):
        remove_abandoned(
            target.parent, target.name
        )  # a killed process may have left one while another process was faster
        return target
    if target.exists():
        print_remaking(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with make_temporary_folder(target) as work:
        write(work)
        (work / SUMS_FILE).write_text(json.dumps(compute_sums(work), indent=1))
        try:
            if not is_intact_folder(target):  # missing or damaged
                shutil.rmtree(target, ignore_errors=True)
            work.rename(target)
        except OSError:
            if not is_intact_folder(target):  # else another process was faster
                raise
    return target


def is_intact_folder(folder: Path) -> bool:
    """True if a folder holds what was written when it was made: the same files, the same bytes."""
    try:
        return bool(json.loads((folder / SUMS_FILE).read_text()) == compute_sums(folder))
    except (OSError, ValueError):
        return False


def compute_sums(folder: Path) -> dict[str, str]:
    """Compute the sha256 of each file in a folder except the file of the sums, by name."""
    return {file.name: sha256_file(file) for file in folder.iterdir() if file.name != SUMS_FILE}


def save_cached_arrays(arrays: Mapping[str, np.ndarray], file: Path) -> None:
    """Write arrays to the cache, whole or not at all; StorageError if it can't be written.

    Args:
        arrays: name -> array of any shape.
        file: the file to write. Its name is part of the checksum, so a copy under another name is not used.
    """
    from safetensors.numpy import save

    checksum = np.frombuffer(compute_array_checksum(arrays, file.name), np.uint8)
    # safetensors' save_file would replace the locked temporary file by another file, which is not locked.
    content = save({**arrays, CHECKSUM: checksum})
    write_cached(file, lambda temporary: temporary.write_bytes(content), "token cache")


def load_cached_arrays(file: Path, build: Callable[[dict[str, np.ndarray]], T]) -> T | None:
    """Build an object from a cached file's arrays, by name.

    Returns None if the file is missing, and if it is damaged, after a line that says so.
    """
    from safetensors.numpy import load_file

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
