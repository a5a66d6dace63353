"""A folder that somebody else may have made, and what came out of checking it."""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from isobench.bundles.manifest import (
    ANALYSIS_FOLDER,
    MANIFEST_FILE,
    PLAN_FILE,
    TABLE_LIMIT,
    Manifest,
)
from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import RECORD_LIMIT, read_bounded
from isobench.runs.folder import (
    ABOUT_FILE,
    CHECKPOINTS_FOLDER,
    MARKER_FILE,
    PREDICTIONS_FILE,
    PROGRESS_FILE,
    RECORD_FILE,
    is_run_folder_name,
    runs_folder,
)

HOLDS, FAILS, DIFFERS, UNCHECKED = "holds", "fails", "differs", "not checked"
OUTCOMES = (HOLDS, FAILS, DIFFERS, UNCHECKED)
# Every check, with what holds where it holds.
CHECKS = {
    "files": "the manifest's checksums; no file is missing, added, or a link",
    "record": "each record is whole, and its parts agree",
    "config": "the config of each record is valid, and its classes are those of isobench",
    "key": "each key follows from its settings and fingerprints",
    "scores": "scores follow from predictions and labels",
    "labels": "runs on the same data have the same labels",
    "copies": "no run has the outputs of another seed or setting",
    "analysis": "rows of analyses, computed again, are those stored",
    "data": "data and labels are those of the record",
    "weights": "weights are those of the record",
    "environment": "code, packages and machine are those of the record",
    "retrained": "trained again, runs give what they recorded",
}


FILE_NAMES = (ABOUT_FILE, PREDICTIONS_FILE, PROGRESS_FILE, RECORD_FILE, MARKER_FILE)
MAX_DEPTH = 3  # folders below the folder; isobench makes two, and runs have checkpoints


class VerifiedFolder:
    """A bundle or an output folder, whose files are named by their paths relative to it, with slashes.

    It reads nothing outside of the folder, no links and no pipes. ``sizes`` has the bytes of every regular file,
    ``refused`` why each other entry is not read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sizes: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        if not root.is_dir():
            raise UserError(f"{root} is no folder: name a bundle or an output folder")
        self.is_bundle = any(os.path.lexists(root / name) for name in (MANIFEST_FILE, PLAN_FILE, ANALYSIS_FOLDER))
        if not (self.is_bundle or (root / MARKER_FILE).is_file() or runs_folder(root).is_dir()):
            raise UserError(
                f"{root} is neither a bundle (it has no {MANIFEST_FILE}) nor an output folder of isobench"
            )
        for current, folders, files in os.walk(root, onerror=self._refuse):
            path = Path(current).relative_to(root)
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
        elif path.name in FILE_NAMES:
            self.refused[path.as_posix()] = "it is a folder in the place of a file"
        elif len(path.parts) > MAX_DEPTH:
            self.refused[path.as_posix()] = "isobench writes no folders as deep: it is not read"

    def _is_checked_folder(self, path: Path) -> bool:
        if len(path.parts) > MAX_DEPTH:  # os.walk calls itself, as deep as a stranger's folders are
            return False
        return self.is_bundle or (path.parts[0] in ("runs", "reports") and path.name != CHECKPOINTS_FOLDER)

    def list_runs(self) -> list[str]:
        paths = (Path(name).parts for name in self.sizes)
        return sorted(
            {path[1] for path in paths if path[0] == "runs" and len(path) == 3 and is_run_folder_name(path[1])}
        )

    def list_analyses(self) -> list[str]:
        return sorted(name.rpartition("/")[0] for name in self.sizes if name.endswith(f"/{ABOUT_FILE}"))

    def read(self, name: str, limit: int = RECORD_LIMIT) -> bytes:
        """Read a whole file of at most ``limit`` bytes; OSError if it is no regular file here, or larger."""
        if name not in self.sizes:
            raise FileNotFoundError(self.refused.get(name, f"{name} is missing"))
        content = read_bounded(self.root / name, limit)
        self._digests[name] = hashlib.sha256(content).hexdigest()
        return content

    def digest(self, name: str) -> str:
        """Return the hex sha256 of a file, which is read unless it was before."""
        if name not in self._digests:
            self.read(name, TABLE_LIMIT)
        return self._digests[name]

    def find_changes(self, manifest: Manifest) -> Iterator[tuple[str, str]]:
        """Yield the path of each file that a bundle lacks, has also, or has with other bytes, and what is wrong."""
        for name, sha256 in manifest.files.items():
            try:
                if self.digest(name) != sha256:
                    yield name, f"it is not the file that {MANIFEST_FILE} lists"
            except OSError as error:
                yield name, extract_first_line(error)
        for name in sorted(((self.sizes.keys() - {MANIFEST_FILE}) | self.refused.keys()) - manifest.files.keys()):
            yield name, self.refused.get(name, "the manifest does not name it")


class _Entry(NamedTuple):
    """What one check found of a subject: a run's folder name, or a file."""

    subject: str
    check: str  # one of CHECKS
    outcome: str  # one of OUTCOMES
    text: str = ""  # what is wrong, or why it was not checked; empty if it holds


class Outcomes:
    """The outcomes of all checks of one folder, in their order; ``manifest`` is a bundle's, as it was verified."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.manifest: Manifest | None = None

    def note(self, subject: str, check: str, outcome: str, text: str = "") -> None:
        self.entries.append(_Entry(subject, check, outcome, text))

    def judge(self, subject: str, check: str, problems: Iterable[str], outcome: str = FAILS) -> None:
        """Note a failure, or another outcome, for each problem, or that the check holds if there is none."""
        problems = list(problems)
        for problem in problems:
            self.note(subject, check, outcome, problem)
        if not problems:
            self.note(subject, check, HOLDS)

    def list_entries(self, outcome: str) -> list[_Entry]:
        return [entry for entry in self.entries if entry.outcome == outcome]

    @property
    def has_failed(self) -> bool:
        return bool(self.list_entries(FAILS))

    def find_untrained(self) -> str | None:
        """Return why no run was trained again; None if one was."""
        entries = [entry for entry in self.entries if entry.check == "retrained"]
        return None if any(entry.outcome != UNCHECKED for entry in entries) else "; ".join(e.text for e in entries)

    def count(self) -> dict[str, Counter[str]]:
        """Count subjects by outcome: check -> outcome -> number; a subject counts once for each of its outcomes."""
        seen = dict.fromkeys((entry.check, entry.outcome, entry.subject) for entry in self.entries)
        counts = {check: Counter[str]() for check in CHECKS}
        for check, outcome, _ in seen:
            counts[check][outcome] += 1
        return {check: counter for check, counter in counts.items() if counter}

    def to_json(self) -> dict[str, Any]:
        """Return everything for programs: whether anything fails, the counts, and each subject's outcomes."""
        subjects: dict[str, dict[str, list[dict[str, str]]]] = {}
        for entry in self.entries:
            finding = {"outcome": entry.outcome, **({"text": entry.text} if entry.text else {})}
            subjects.setdefault(entry.subject, {}).setdefault(entry.check, []).append(finding)
        return {"failed": self.has_failed, "counts": self.count(), "subjects": subjects}
