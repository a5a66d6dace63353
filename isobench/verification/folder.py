"""Read the files of a folder that somebody else may have made: nothing outside of it, no links, no pipes."""

import hashlib
import os
import stat
from pathlib import Path

from isobench.bundles.layout import COMMANDS_FILE, CRATE_FILE, MANIFEST_FILE, REPORT_FOLDER
from isobench.common.errors import UserError, extract_first_line
from isobench.common.reading import MEBIBYTE, RECORD_LIMIT, read_bounded
from isobench.runs.layout import CHECKPOINTS_FOLDER, MARKER_FILE, is_run_folder_name, runs_folder

PREDICTIONS_LIMIT = 1024 * MEBIBYTE
MAX_FILES = 1_000_000
MAX_DEPTH = 8  # folders below the folder; isobench makes three
BUNDLE_NAMES = (MANIFEST_FILE, CRATE_FILE, COMMANDS_FILE, REPORT_FOLDER)  # no output folder has any of them
CHECKED_FOLDERS = ("runs", "reports")  # of an output folder; the others hold jobs, logs and commands
NOT_CHECKED_FOLDERS = (CHECKPOINTS_FOLDER,)  # of an output folder's run


class VerifiedFolder:
    """A bundle or an output folder, whose files are named by their paths relative to it, with slashes.

    ``sizes`` has the bytes of every regular file, ``refused`` why each other entry (a link, a pipe) is not read.
    Files are hashed when they are read, so that each is read once.

    Args:
        root: the folder.

    Raises:
        UserError: it is no folder, or neither a bundle nor an output folder.
    """

    def __init__(self, root: Path) -> None:
        """List the folder."""
        self.root = root
        self.sizes: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        if not root.is_dir():
            raise UserError(f"{root} is no folder: name a bundle or an output folder")
        self.is_bundle = any(os.path.lexists(root / name) for name in BUNDLE_NAMES)
        self._list_entries(root, "", 0)
        known = self.is_bundle or (root / MARKER_FILE).is_file() or runs_folder(root).is_dir()
        if not known:
            raise UserError(
                f"{root} is neither a bundle (it has no {MANIFEST_FILE}) nor an output folder of isobench"
            )

    def _list_entries(self, folder: Path, prefix: str, depth: int) -> None:
        """Note size or refusal of every entry of a folder and its folders; ``prefix``: its path and a slash."""
        if depth > MAX_DEPTH or len(self.sizes) > MAX_FILES:
            self.refused[prefix.rstrip("/")] = "isobench writes no folders as deep, nor as many files: it is not read"
            return
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self.refused[prefix.rstrip("/") or "."] = extract_first_line(error)
            return
        for entry in entries:
            name = prefix + entry.name
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                self.refused[name] = "it is a link, and links are not followed"
            elif stat.S_ISDIR(status.st_mode):
                if self._is_checked_folder(prefix, entry.name):
                    self._list_entries(Path(entry.path), f"{name}/", depth + 1)
            elif stat.S_ISREG(status.st_mode):
                self.sizes[name] = status.st_size
            else:
                self.refused[name] = "it is no regular file"

    def _is_checked_folder(self, prefix: str, name: str) -> bool:
        """Return True unless a folder is one of an output folder's that verify does not look at."""
        return self.is_bundle or (name in CHECKED_FOLDERS if not prefix else name not in NOT_CHECKED_FOLDERS)

    def list_runs(self) -> list[str]:
        """List the names of the runs' folders, those of empty folders left out."""
        parts = (name.split("/") for name in self.sizes)
        return sorted(
            {part[1] for part in parts if part[0] == "runs" and len(part) > 2 and is_run_folder_name(part[1])}
        )

    def list_reports(self) -> list[str]:
        """List the paths of the folders with the files of a report or an analysis."""
        if self.is_bundle:
            return ["report"] if any(name.startswith("report/") for name in self.sizes) else []
        parts = (name.split("/") for name in self.sizes)
        return sorted({f"reports/{part[1]}" for part in parts if part[0] == "reports" and len(part) == 3})

    def has(self, name: str) -> bool:
        """Return True if there is a regular file of this name."""
        return name in self.sizes

    def read(self, name: str, limit: int = RECORD_LIMIT) -> bytes:
        """Read a whole file of at most ``limit`` bytes.

        Raises:
            OSError: there is no regular file of this name, it is larger, or it can't be read.
        """
        if name not in self.sizes:
            raise FileNotFoundError(self.refused.get(name, f"{name} is missing"))
        if self.sizes[name] > limit:
            raise OSError(f"{name} is larger than {limit / MEBIBYTE:g} MiB")
        content = read_bounded(self.root / name, self.sizes[name])
        self._digests[name] = hashlib.sha256(content).hexdigest()
        return content

    def digest(self, name: str) -> str:
        """Return the hex sha256 of a file, which is read now unless it was before.

        Raises:
            OSError: it can't be read.
        """
        if name not in self._digests:
            with (self.root / name).open("rb") as file:
                self._digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._digests[name]
