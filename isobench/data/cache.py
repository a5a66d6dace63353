"""Files and folders that are kept in ``data.cache`` with checksums, and made again when they are damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isobench.common.files import (
    cache_dir,
    explain_disk_errors,
    make_temporary_folder,
    print_remaking,
    read_bounded,
    read_checksummed,
    remove_path,
    sha256_file,
    shorten_digest,
    write_cached,
)

if TYPE_CHECKING:  # late: a command line is read without it
    import numpy as np

SUMS_FILE = "sums.json"  # in the folder: the sha256 of each of its other files


def make_checked_folder(target: Path, write: Callable[[Path], Any]) -> Path:
    """Return ``target``, a folder that ``write`` fills on the first call, given an empty folder.

    A damaged folder is made again. It appears whole or not at all, also if several processes make it at the same
    time.
    """
    if _is_intact_folder(target):
        return target
    if target.exists():
        print_remaking(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with make_temporary_folder(target) as work:
        with explain_disk_errors(work):
            write(work)
        (work / SUMS_FILE).write_text(json.dumps(_compute_sums(work), indent=1))
        try:
            if not _is_intact_folder(target):  # missing or damaged
                remove_path(target)
            work.rename(target)
        except OSError:
            if not _is_intact_folder(target):  # else another process was faster
                raise
    return target


def _is_intact_folder(folder: Path) -> bool:
    try:
        return bool(json.loads(read_bounded(folder / SUMS_FILE)) == _compute_sums(folder))
    except (OSError, ValueError):
        return False


def _compute_sums(folder: Path) -> dict[str, str]:
    files = [file for file in folder.iterdir() if file.name != SUMS_FILE]
    return {file.name: sha256_file(file) if file.is_file() else "no file" for file in files}


def save_cached_arrays(arrays: dict[str, "np.ndarray"], file: Path) -> None:
    """Write arrays, by name, to the cache."""
    from safetensors.numpy import save

    with write_cached(file) as temporary:
        temporary.write_bytes(save(arrays))


def load_cached_arrays(file: Path) -> dict[str, "np.ndarray"] | None:
    """Read a cached file's arrays, by name; None if the file is missing, or damaged, which is said."""
    from safetensors.numpy import load

    if not file.exists():
        return None
    try:
        return load(read_checksummed(file))
    except (OSError, ValueError):  # with the right checksum it is what was written
        print_remaking(file)
        return None


def load_or_make_arrays(file: Path, make: Callable[[], dict[str, "np.ndarray"]]) -> dict[str, "np.ndarray"]:
    """Return a cached file's arrays, by name; make and write them first if it is missing or damaged."""
    arrays = load_cached_arrays(file)
    if arrays is None:
        arrays = make()
        save_cached_arrays(arrays, file)
    return arrays


def name_cached_file(cache: str | None, folder: str, start: str, key: str, ending: str = "safetensors") -> Path:
    """Return the path of a file in a folder of ``data.cache``; ``key``: a digest of all that decides its content."""
    return cache_dir(cache) / folder / f"{start}-{shorten_digest(key)}.{ending}"
