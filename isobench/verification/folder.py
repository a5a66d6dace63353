"""Read the files of a folder that somebody else may have made: nothing outside of it, no links, no pipes."""

import hashlib
import os
import stat
from pathlib import Path

from isobench.bundles.manifest import ANALYSIS_FOLDER, MANIFEST_FILE, PLAN_FILE, TABLE_LIMIT, refuse_former_bundle
from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import RECORD_LIMIT, read_bounded
from isobench.runs.folder import ABOUT_FILE, CHECKPOINTS_FOLDER, MARKER_FILE, is_run_folder_name, runs_folder

MAX_DEPTH = 3  # folders below the folder; isobench makes two, and runs have checkpoints
BUNDLE_NAMES = (MANIFEST_FILE, PLAN_FILE, ANALYSIS_FOLDER)  # no output folder has any of them
CHECKED_FOLDERS = ("runs", "reports")  # of an output folder; the others hold plans, jobs and logs


class VerifiedFolder:
    """A bundle or an output folder, whose files are named by their paths relative to it, with slashes.

    ``sizes`` has the bytes of every regular file, ``refused`` why each other entry (a link, a pipe) is not read.

    Args:
        root: the folder.

    Raises:
        UserError: it is no folder, or neither a bundle nor an output folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sizes: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        if not root.is_dir():
            raise UserError(f"{root} is no folder: name a bundle or an output folder")
        refuse_former_bundle(root)
        self.is_bundle = any(os.path.lexists(root / name) for name in BUNDLE_NAMES)
        if not (self.is_bundle or (root / MARKER_FILE).is_file() or runs_folder(root).is_dir()):
            raise UserError(
                f"{root} is neither a bundle (it has no {MANIFEST_FILE}) nor an output folder of isobench"
            )
        for place, folders, files in os.walk(root, onerror=self._refuse):
            path = Path(place).relative_to(root)
            for name in [*files, *folders]:
                self._note_entry(path / name)
            folders[:] = sorted(name for name in folders if self._is_checked_folder(path / name))

    def _refuse(self, error: OSError) -> None:
        self.refused[Path(error.filename).relative_to(self.root).as_posix()] = extract_first_line(error)

    def _note_entry(self, path: Path) -> None:
        status = (self.root / path).lstat()
        if stat.S_ISREG(status.st_mode):
            self.sizes[path.as_posix()] = status.st_size
        elif stat.S_ISLNK(status.st_mode):
            self.refused[path.as_posix()] = "it is a link, and links are not followed"
        elif not stat.S_ISDIR(status.st_mode):
            self.refused[path.as_posix()] = "it is no regular file"
        elif len(path.parts) > MAX_DEPTH:
            self.refused[path.as_posix()] = "isobench writes no folders as deep: it is not read"

    def _is_checked_folder(self, path: Path) -> bool:
        if self.is_bundle:
            return len(path.parts) <= MAX_DEPTH
        return path.parts[0] in CHECKED_FOLDERS and len(path.parts) <= MAX_DEPTH and path.name != CHECKPOINTS_FOLDER

    def list_runs(self) -> list[str]:
        """List the names of the runs' folders, those of empty folders left out."""
        parts = (name.split("/") for name in self.sizes)
        return sorted(
            {part[1] for part in parts if part[0] == "runs" and len(part) == 3 and is_run_folder_name(part[1])}
        )

    def list_analyses(self) -> list[str]:
        """List the paths of the folders with an analysis's about.json."""
        return sorted(name.rpartition("/")[0] for name in self.sizes if name.endswith(f"/{ABOUT_FILE}"))

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
        content = read_bounded(self.root / name, limit)
        self._digests[name] = hashlib.sha256(content).hexdigest()
        return content

    def digest(self, name: str) -> str:
        """Return the hex sha256 of a file, which is read unless it was before.

        Raises:
            OSError: it can't be read.
        """
        if name not in self._digests:
            self.read(name, TABLE_LIMIT)
        return self._digests[name]
