"""Note which runs were submitted in which jobs, and find out which of these jobs are still waiting or running."""

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from isobench.common.checksums import add_json_checksum, read_json
from isobench.common.errors import UserError
from isobench.common.files import write_json
from isobench.common.interruption import raise_if_noted
from isobench.common.reading import RECORD_LIMIT
from isobench.common.terminal import print_note
from isobench.runs.folder import RunFolder
from isobench.runs.layout import jobs_folder


@dataclass(config=ConfigDict(strict=True, extra="ignore", defer_build=True))
class Submission:
    """One submission of a sweep's runs to SLURM."""

    job: str  # the ids of its arrays
    runs: dict[str, list[str]]  # each job's id, with the names of its runs' folders
    submitted: float  # when, in seconds since 1970

    def save(self, output_dir: str | Path) -> None:
        """Write the submission to ``jobs/slurm-<job>.json``."""
        folder = jobs_folder(output_dir)
        write_json(folder / f"slurm-{self.job}.json", add_json_checksum(asdict(self)))


@dataclass(frozen=True)
class QueuedJob:
    """The job that is to carry out a run, and when it was submitted, in seconds since 1970."""

    job: str
    since: float


def find_queued_jobs(output_dir: str | Path) -> Mapping[str, QueuedJob]:
    """Find the jobs that are still waiting or running, by the names of their runs' folders.

    Raises:
        UserError: SLURM is installed and does not answer, so that its jobs may or may not be there.
    """
    submissions = read_submissions(output_dir)
    in_slurm = list_slurm_jobs() if submissions else set()
    return {
        name: QueuedJob(job, submission.submitted)
        for submission in submissions
        for job, names in submission.runs.items()
        if job in in_slurm
        for name in names
    }


def read_submissions(output_dir: str | Path) -> list[Submission]:
    """Read all submissions of an output folder, oldest first; damaged ones are left out, and named once."""
    submissions = []
    for file in jobs_folder(output_dir).glob("slurm-*.json"):
        try:
            submissions.append(Submission(**read_json(file, RECORD_LIMIT)))
        except (OSError, ValueError, TypeError):
            _name_damaged(file)
    return sorted(submissions, key=lambda submission: submission.submitted)


@cache
def _name_damaged(file: Path) -> None:
    """Say once that a submission is damaged: a sweep or status --watch reads it many times."""
    print_note(f"{file} is damaged: its runs do not count as queued; remove it when its jobs have ended")


def list_slurm_jobs() -> set[str]:
    """List the ids of this user's jobs and array tasks that wait or run in SLURM; empty where SLURM isn't installed.

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
    """Read how many jobs SLURM takes in one array; SLURM's default, 1000, where it does not say."""
    try:
        answer = subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, text=True, timeout=60, check=True
        )
        return max(1, int(re.search(r"MaxArraySize\s*=\s*(\d+)", answer.stdout)[1]) - 1)  # type: ignore[index]
    except (OSError, subprocess.SubprocessError, TypeError):
        return 1000


def wait_for_runs(
    output_dir: str | Path, submission: Submission, folders: Sequence[RunFolder], poll: float = 2.0
) -> None:
    """Wait until every run of a submission has its record, or none of its jobs was there twice in a row.

    The records come first, since a scheduler without accounting never reports that a cancelled job is over. Whenever
    runs have ended, their number is printed.

    Args:
        output_dir: the output folder.
        submission: the submission.
        folders: the folders of its runs.
        poll: seconds between two looks.
    """
    times_without_jobs, printed_count = 0, 0
    while times_without_jobs < 2:
        raise_if_noted()
        ended_count = sum(folder.read_end_time() >= submission.submitted for folder in folders)
        if ended_count != printed_count:
            print(f"{ended_count} of {len(folders)} runs have ended", file=sys.stderr, flush=True)
            printed_count = ended_count
        if ended_count == len(folders):
            return
        time.sleep(poll)
        with contextlib.suppress(UserError):  # a scheduler that doesn't answer still has its jobs
            queued = {queued_job.job for queued_job in find_queued_jobs(output_dir).values()}
            times_without_jobs = 0 if queued & submission.runs.keys() else times_without_jobs + 1
