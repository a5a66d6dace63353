"""Collect what came out of every check: what holds, fails, differs harmlessly, and what was not checked."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

HOLDS, FAILS, DIFFERS, UNCHECKED = "holds", "fails", "differs", "not checked"
OUTCOMES = (HOLDS, FAILS, DIFFERS, UNCHECKED)
# Every check, with what holds where it holds.
CHECKS = {
    "files": "the manifest's checksums; no file is missing, added, or a link",
    "record": "each record is whole, and its parts agree",
    "config": "config.yaml is the record's config, and valid",
    "key": "each key follows from its settings and fingerprints",
    "scores": "scores follow from predictions and labels",
    "labels": "runs on the same data have the same labels",
    "analysis": "rows of analyses, computed again, are those stored",
    "data": "data and labels are those of the record",
    "weights": "weights are those of the record",
    "environment": "code, packages and machine are those of the record",
    "retrained": "trained again, runs give what they recorded",
}


@dataclass(frozen=True)
class Entry:
    """One outcome of one check.

    Args:
        subject: the run's folder name, or the file.
        check: one of ``CHECKS``.
        outcome: one of ``OUTCOMES``.
        text: what is wrong, or why it was not checked; empty if it holds.
    """

    subject: str
    check: str
    outcome: str
    text: str = ""


class Outcomes:
    """The outcomes of all checks of one folder, in the order in which they were made."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def note(self, subject: str, check: str, outcome: str, text: str = "") -> None:
        """Note an outcome, such as DIFFERS for another version of a package, which is no failure."""
        self.entries.append(Entry(subject, check, outcome, text))

    def judge(self, subject: str, check: str, problems: Iterable[str]) -> None:
        """Note a failure for each problem, or that the check holds if there is none."""
        problems = list(problems)
        for problem in problems:
            self.note(subject, check, FAILS, problem)
        if not problems:
            self.note(subject, check, HOLDS)

    def list_entries(self, outcome: str) -> list[Entry]:
        """Return the entries with an outcome."""
        return [entry for entry in self.entries if entry.outcome == outcome]

    @property
    def has_failed(self) -> bool:
        """Return True if a check failed."""
        return bool(self.list_entries(FAILS))

    def find_untrained(self) -> str | None:
        """Return why no run was trained again; None if one was."""
        entries = [entry for entry in self.entries if entry.check == "retrained"]
        return None if any(entry.outcome != UNCHECKED for entry in entries) else entries[-1].text

    def count(self) -> dict[str, Counter[str]]:
        """Count subjects by outcome: check -> outcome -> number; a subject counts once for each of its outcomes."""
        seen = dict.fromkeys((entry.check, entry.outcome, entry.subject) for entry in self.entries)
        counts = {check: Counter(outcome for own, outcome, _ in seen if own == check) for check in CHECKS}
        return {check: counter for check, counter in counts.items() if counter}

    def to_json(self) -> dict[str, Any]:
        """Return everything for programs: whether anything fails, the counts, and each subject's outcomes."""
        subjects: dict[str, dict[str, list[dict[str, str]]]] = {}
        for entry in self.entries:
            told = {"outcome": entry.outcome, **({"text": entry.text} if entry.text else {})}
            subjects.setdefault(entry.subject, {}).setdefault(entry.check, []).append(told)
        return {"failed": self.has_failed, "counts": self.count(), "subjects": subjects}
