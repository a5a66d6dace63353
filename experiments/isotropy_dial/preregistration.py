"""Say when the study ``isotropy_dial`` was preregistered: before its first run, and changed since or not."""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from isobench.common.files import sha256_file
from isobench.common.provenance import run_git

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

ANALYSIS_FILES = (  # what computes and defines the study, in the checkout
    "experiments/isotropy_dial/*.py", "experiments/isotropy_dial/experiment/*.yaml",
    "isobench/statistics/dose_response.py",
    "isobench/analyses/isotropy_dial*.py", "conf/experiment/isotropy_dial.yaml",  # where they were before
)  # fmt: skip
PATHS = tuple(f":(top,glob){name}" for name in ANALYSIS_FILES)  # as git reads them from any folder


def describe_preregistration(subjects: Sequence["Subject"], file: Path) -> list[str]:
    """Put the commits of the preregistration beside the first run; warn if the run is older than one of them.

    The first run is the one that began first, by the time of its record's file and the seconds that it took. Whether
    a commit of the preregistration is older than the run's code is read from git's history. Clocks decide only where
    the history does not have the run's commit.
    """
    if not file.is_file():
        return [f"WARNING: there is no {file.name}: nothing shows that the hypotheses are older than the runs."]
    done = [(find_start(subject), subject) for subject in subjects if subject.record is not None]
    start, first = min(done, key=lambda pair: pair[0])
    assert first.record is not None
    git = first.record.provenance.git
    code = f"code {git.commit[:12]}{' with changes' if git.dirty else ''}" if git else "code of an installed package"
    run = f"the first run began {format_time(start)}, {code}"
    try:
        log = run_git(file.parent, "log", "--format=%H %ct", "--", file.name).splitlines()  # the newest first
        (last, changed), (oldest, written) = (line.split() for line in (log[0], log[-1]))
        is_edited = bool(run_git(file.parent, "status", "--porcelain", "--", file.name))
    except (OSError, subprocess.SubprocessError, IndexError):  # an installed package, or the file is in no commit
        return [f"{file.name}: sha256 {sha256_file(file)}, in no commit; {run}."]
    notes = [
        f"{file.name}: first commit {oldest[:12]} of {format_time(float(written))}, "
        f"last commit {last[:12]} of {format_time(float(changed))}; {run}."
    ]
    commit = git.commit if git and knows_commit(file.parent, git.commit) else None
    if not is_before(file.parent, (oldest, float(written)), (commit, start)):
        notes.append(f"WARNING: the first run is older than {file.name}: nothing was preregistered.")
    elif not is_before(file.parent, (last, float(changed)), (commit, start)):
        notes.append(f"WARNING: {file.name} was changed after the first run: its last section must say how and why.")
    if is_edited:
        notes.append(f"WARNING: {file.name} has edits that are in no commit.")
    return notes + ([describe_analysis_changes(file.parent, commit)] if commit else [])


def is_before(folder: Path, older: tuple[str, float], run: tuple[str | None, float]) -> bool:
    """Return True if a run's code has a commit in its history; without the run's commit, compare the times.

    Args:
        folder: a folder of the checkout.
        older: the commit, and its time.
        run: the commit of the run's code, None if it is not known here, and when the run began.
    """
    (commit, written), (code, start) = older, run
    if code is None:
        return written <= start
    try:
        run_git(folder, "merge-base", "--is-ancestor", commit, code)
    except (OSError, subprocess.SubprocessError):  # git exits with 1 if it is none
        return False
    return True


def knows_commit(folder: Path, commit: str) -> bool:
    """Return True if the checkout's history has a commit."""
    try:
        run_git(folder, "cat-file", "-e", f"{commit}^{{commit}}")
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def describe_analysis_changes(folder: Path, commit: str) -> str:
    """Count the commits that changed the analysis since the code of the first run."""
    files = ", ".join(ANALYSIS_FILES)
    try:
        count = len(run_git(folder, "log", "--format=%h", f"{commit}..HEAD", "--", *PATHS).splitlines())
        is_edited = bool(run_git(folder, "status", "--porcelain", "--", *PATHS))
    except (OSError, subprocess.SubprocessError):
        return f"How often the analysis was changed since the first run's code is not known ({files})."
    edited = ", and edits that are in no commit," if is_edited else ""
    text = f"{count} commit{'s' * (count != 1)}{edited} changed the analysis since the first run's code"
    return f"{text}: git log {commit[:12]}.. of {files}."


def find_start(subject: "Subject") -> float:
    """Return when a run with a record began, in seconds since 1970."""
    assert subject.record is not None
    return subject.folder.result_file.stat().st_mtime - subject.record.cost.seconds


def format_time(seconds: float) -> str:
    """Write a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
