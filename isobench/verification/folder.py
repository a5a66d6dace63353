"""A folder that somebody else may have made, and what came out of checking it."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from isobench.bundles.manifest import ANALYSIS_FOLDER, MANIFEST_FILE, Manifest
from isobench.common.errors import UserError
from isobench.runs.bundled import RECORDS_FILE, read_predictions, read_records
from isobench.runs.folder import ABOUT_FILE, MARKER_FILE, RunFolder, reports_folder, run_folder_name, runs_folder
from isobench.runs.plan import list_run_folders

HOLDS, FAILS, DIFFERS, UNCHECKED = "holds", "fails", "differs", "not checked"
OUTCOMES = (HOLDS, FAILS, DIFFERS, UNCHECKED)
# Every check, with what holds where it holds.
CHECKS = {
    "files": "the manifest's checksums; no file is missing or added",
    "record": "each record is whole, and its parts agree",
    "config": "the config of each record is valid, and a method with a name of isobench's is that class",
    "key": "each key follows from its settings and fingerprints",
    "scores": "scores follow from predictions and labels",
    "labels": "runs on the same data have the same labels",
    "analysis": "rows of analyses, computed again, are those stored",
    "data": "data and labels are those of the record",
    "weights": "weights are those of the record",
    "environment": "code, packages and machine are those of the record",
    "retrained": "trained again, runs give what they recorded",
}


class VerifiedFolder:
    """A bundle or an output folder of runs, each under the first digits of its key."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.is_bundle = any((root / name).exists() for name in (MANIFEST_FILE, RECORDS_FILE))
        if not (self.is_bundle or (root / MARKER_FILE).is_file() or runs_folder(root).is_dir()):
            reason = f"neither a bundle (it has no {MANIFEST_FILE}) nor an output folder of isobench"
            raise UserError(f"{root} is {reason}")
        self.runs: dict[str, RunFolder] = {}

    def find_runs(self) -> None:
        """Find all runs; UserError if a bundle's are damaged."""
        keys = read_records(self.root) if self.is_bundle else [path.name for path in list_run_folders(str(self.root))]
        self.runs = {run_folder_name(key): RunFolder(str(self.root), key) for key in sorted(keys)}
        if len(self.runs) < len(keys):
            raise UserError("two of its records have keys that begin alike")
        if self.is_bundle and (others := read_predictions(self.root).keys() - keys):
            raise UserError(f"it has predictions of {run_folder_name(min(others))}, and no record")

    def list_analyses(self) -> list[Path]:
        """List the folders with the rows of an analysis."""
        if self.is_bundle:
            folders = [self.root / ANALYSIS_FOLDER]
        else:
            folders = sorted(path for path in reports_folder(self.root).glob("*") if not path.is_symlink())
        return [path for path in folders if (path / ABOUT_FILE).is_file()]


class _Entry(NamedTuple):
    """What one check found of a subject: a run's folder name, or a file."""

    subject: str
    check: str  # one of CHECKS
    outcome: str  # one of OUTCOMES
    text: str = ""  # what is wrong, or why it was not checked; empty if it holds


class Outcomes:
    """The outcomes of all checks of one folder, in their order.

    ``manifest`` is a bundle's, as it was verified. ``scores`` has, of each run with predictions, task, encoder,
    method, the score that they give and the recorded one.
    """

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.manifest: Manifest | None = None
        self.scores: list[tuple[str, str, str, float, float]] = []

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
