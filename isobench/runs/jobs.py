"""Jobs that were submitted and not waited for: which runs they hold, and whether they are still there."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from isobench.common.errors import UserError
from isobench.common.files import write_json
from isobench.runs.folder import RunFolder
from isobench.runs.layout import jobs_folder


@dataclass
class Submission:
    """One submission: where it went, and the run folders' names each of its jobs holds."""

    launcher: str  # slurm or local
    job: str
    runs: dict[str, list[str]]
    submitted: float

    def save(self, output_dir: str | Path) -> None:
        """Write ``jobs/<job>.json``, once."""
        write_json(jobs_folder(output_dir) / f"{self.launcher}-{self.job}.json", asdict(self))


@dataclass(frozen=True)
class QueuedJob:
    """The job that is to carry out a run, and when it was submitted."""

    job: str
    since: float


def read_submissions(output_dir: str | Path) -> list[Submission]:
    """All submissions noted, oldest first; files that are none are passed over."""
    found = []
    for file in jobs_folder(output_dir).glob("*.json"):
        try:
            noted = Submission(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError):
            continue
        if isinstance(noted.runs, dict) and isinstance(noted.submitted, float):
            found.append(noted)
    return sorted(found, key=lambda submission: submission.submitted)


def find_queued_jobs(output_dir: str | Path) -> Mapping[str, QueuedJob]:
    """The jobs that are still waiting or running, by the names of the run folders they hold.

    Raises:
        UserError: SLURM is here and does not answer: its jobs must not be taken for gone.
    """
    noted = read_submissions(output_dir)
    in_slurm = list_slurm_jobs() if any(submission.launcher == "slurm" for submission in noted) else set()
    found = {}
    for submission in noted:
        for job, runs in submission.runs.items():
            if job in in_slurm if submission.launcher == "slurm" else is_local_job_alive(job):
                found.update(dict.fromkeys(runs, QueuedJob(job, submission.submitted)))
    return found


def list_slurm_jobs() -> set[str]:
    """The names of this user's jobs and array tasks that SLURM still means to run; empty without SLURM.

    Raises:
        UserError: SLURM does not answer.
    """
    if shutil.which("squeue") is None:
        return set()
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError("SLURM doesn't say which jobs it has (squeue failed); try again in a while") from error
    return set(answer.stdout.split())


def read_slurm_array_limit() -> int:
    """How many jobs SLURM takes in one array; its default where it does not say."""
    try:
        answer = subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, text=True, timeout=60, check=True
        )
        return max(1, int(re.search(r"MaxArraySize\s*=\s*(\d+)", answer.stdout)[1]) - 1)  # type: ignore[index]
    except (OSError, subprocess.SubprocessError, TypeError):
        return 1000


def is_local_job_alive(job: str) -> bool:
    """Whether a local job's controlling process is there. ``job`` is its process id."""
    try:
        command = psutil.Process(int(job)).cmdline()
    except (ValueError, psutil.Error):
        return False
    return any("submitit" in word for word in command)


def wait_for_runs(
    output_dir: str | Path, submission: Submission, folders: Sequence[RunFolder], poll: float = 2.0
) -> None:
    """Return once every run has its record, or none of the jobs is there any more, as two looks in a row agree.

    The records decide: a scheduler without accounting never says that a cancelled job is over.
    """
    gone, said = 0, ""
    while gone < 2:
        done = sum(folder.read_end_time() >= submission.submitted for folder in folders)
        if (line := f"{done} of {len(folders)} runs have ended") != said and done:
            print(line, file=sys.stderr, flush=True)
            said = line
        if done == len(folders):
            return
        time.sleep(poll)
        with contextlib.suppress(UserError):  # a scheduler that doesn't answer has lost no job
            there = {waiting.job for waiting in find_queued_jobs(output_dir).values()}
            gone = 0 if there & submission.runs.keys() else gone + 1
