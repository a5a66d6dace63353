"""Folders in the cache that are made once, with a checksum of each of their files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isobench.common.checksums import print_remaking
from isobench.common.files import sha256_file
from isobench.common.temporaries import make_temporary_folder, remove_abandoned

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
