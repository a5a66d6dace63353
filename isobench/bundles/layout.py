"""The layout of a bundle: the names of its files, and how files of a bundle that somebody else made are read.

BUNDLE/manifest.json            every other file with its sha256, every run, the commands
BUNDLE/ro-crate-metadata.json   the same for archives, as an RO-Crate
BUNDLE/commands.txt             the commands that make these runs, one a line
BUNDLE/runs/KEY/                config.yaml, result.json and predictions.parquet of a run, as in an output folder
BUNDLE/report/                  the report of these runs; the files of an experiment's analysis
"""

import hashlib
import os
import unicodedata
from pathlib import Path
from typing import Final

from isobench.common.reading import MEBIBYTE, RECORD_LIMIT, SETTINGS_LIMIT, read_bounded
from isobench.runs.layout import (
    ABOUT_FILE,
    CONFIG_FILE,
    PREDICTIONS_FILE,
    RECORD_FILE,
    REPORT_FILE,
    is_run_folder_name,
    run_folder_name,
)

BUNDLE_FORMAT: Final = 1  # raise it when the shape of manifest.json or the layout changes
MANIFEST_FILE = "manifest.json"
CRATE_FILE = "ro-crate-metadata.json"
COMMANDS_FILE = "commands.txt"
RUNS_FOLDER, REPORT_FOLDER = "runs", "report"
RUN_FILES = (CONFIG_FILE, RECORD_FILE, PREDICTIONS_FILE)
TIDY_FILES = ("runs.parquet", "runs.csv", "epochs.parquet", "epochs.csv")
REPORT_FILES = frozenset((*TIDY_FILES, "report.html", "report.md", "tables.tex", REPORT_FILE))
ANALYSIS_ENDINGS = (".csv", ".parquet", ".png", ".svg", ".txt")  # of the numbers, figures and tables of an analysis
FILE_LIMIT = 1024 * MEBIBYTE  # bytes of a file of predictions or of a report
MAX_NAME = 200  # characters of a file's name


def name_run_file(key: str, file: str) -> str:
    """Return the path of a run's file in a bundle, from the run's key."""
    return f"{RUNS_FOLDER}/{run_folder_name(key)}/{file}"


def is_bundle_path(path: str) -> bool:
    """Return True if a manifest may list this path: one of the names above, and nothing that leaves the folder."""
    parts = path.split("/")
    if parts[0] == RUNS_FOLDER:
        return len(parts) == 3 and is_run_folder_name(parts[1]) and parts[2] in RUN_FILES
    return path == COMMANDS_FILE or (len(parts) == 2 and parts[0] == REPORT_FOLDER and is_plain_name(parts[1]))


def is_plain_name(name: str) -> bool:
    """Return True if a text can be the name of a file: printable, not hidden, without a folder or a drive."""
    return 0 < len(name) <= MAX_NAME and name.isprintable() and name[0] != "." and not set(name) & set("/\\:")


def is_analysis_file(name: str) -> bool:
    """Return True if a file of an analysis can have this name, which is none of a report's own names."""
    if name == ABOUT_FILE:
        return True
    return is_plain_name(name) and name.endswith(ANALYSIS_ENDINGS) and name not in REPORT_FILES


def fold_name(path: str) -> str:
    """Return a path as a file system compares it that ignores case, or forms of letters with accents."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def limit_bytes(path: str) -> int:
    """Return how many bytes a bundle's file may have."""
    limits = {CONFIG_FILE: SETTINGS_LIMIT, COMMANDS_FILE: SETTINGS_LIMIT, RECORD_FILE: RECORD_LIMIT}
    return limits.get(path.rpartition("/")[2], FILE_LIMIT)


def read_bundle_file(bundle: Path, path: str, limit: int) -> bytes:
    """Read a file of a bundle; ``path`` is relative to it, with slashes.

    Raises:
        OSError: it is missing, is or lies behind a link, is no regular file, or is larger than ``limit`` bytes.
    """
    place = bundle
    for part in path.split("/"):
        place /= part
        if place.is_symlink():
            raise OSError(f"{path} is a link or lies behind one, and links are not followed")
    return read_bounded(place, limit)


def compute_sha256(content: bytes) -> str:
    """Compute the hex sha256 of bytes."""
    return hashlib.sha256(content).hexdigest()


def list_files(folder: Path) -> list[str]:
    """List what is in a folder and its subfolders, but no folders, by sorted relative paths with slashes.

    Links are listed and not followed.
    """
    found = []
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        found += [Path(place, name).relative_to(folder).as_posix() for name in [*files, *links]]
    return sorted(found)
