"""Tell the state of runs: from their records, their heartbeats, and the jobs that were submitted for them."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Self

import psutil
import pydantic.dataclasses
from pydantic import ConfigDict

from isobench.common import environment
from isobench.common.errors import doing
from isobench.common.files import RECORD_LIMIT, read_file_time, read_json, write_json
from isobench.common.terminal import print_note, print_note_once
from isobench.runs.folder import PROGRESS_FILE, jobs_folder
from isobench.runs.record import Beat, Where
from isobench.runs.run import Run

BEAT_INTERVAL = 10.0  # seconds between beats
STALE_AFTER = 60.0  # seconds of silence after which a run counts as gone


class Heartbeat:
    """A context in which a thread renews ``progress.json`` in the run's folder every few seconds.

    The file is removed when the context ends well. It stays, marked as interrupted, when the context ends by an
    exception, and stays as it is when the process is killed.
    """

    def __init__(self, folder: Path) -> None:
        self.file = (folder / PROGRESS_FILE).absolute()  # the thread may write while the working folder is another
        before, now = read_heartbeat(folder), time.time()
        if before is None and self.file.exists():
            print_note(f"{self.file} is damaged: the run's attempts are counted anew")
        self.beat = Beat(
            state="starting",
            step=before.step if before else None,
            steps=before.steps if before else None,
            **describe_process().model_dump(),
            pid=os.getpid(),
            started=(before.started or before.since) if before else now,
            since=now,
            updated=now,
            attempt=before.attempt + 1 if before else 1,
        )
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._beat_until_stopped, daemon=True)

    def __enter__(self) -> Self:
        self.write()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self.file.unlink(missing_ok=True)  # the record takes its place
        else:
            self.beat = self.beat.model_copy(update={"state": "interrupted"})
            self.write()

    def report_training(self, step: int, steps: int, loss: float | None = None, speed: float | None = None) -> None:
        """Note that ``step`` of ``steps`` optimiser steps are done; the next beat writes it.

        ``speed`` is in steps per second. Where it or the training loss is None, what was noted before stays.
        """
        began = self.beat.state != "training"
        known = {name: value for name, value in {"loss": loss, "speed": speed}.items() if value is not None}
        self.beat = self.beat.model_copy(update={"state": "training", "step": step, "steps": steps, **known})
        if began:
            self.write()

    def report_evaluating(self) -> None:
        self.beat = self.beat.model_copy(update={"state": "evaluating"})
        self.write()

    def write(self) -> None:
        """Write the file, with the time. A full disk is passed over: writing the record will report it."""
        with self._lock, contextlib.suppress(OSError):
            content = json.loads(self.beat.model_copy(update={"updated": time.time()}).model_dump_json())
            write_json(self.file, content, owner=self.file.parent.name, flush=False)

    def _beat_until_stopped(self) -> None:
        while not self._stop.wait(BEAT_INTERVAL):
            self.write()


def describe_process() -> Where:
    """Return host, job and log of this process, and how many runs share its device, as far as a launcher told."""
    return Where(
        host=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        machine=socket.gethostname(),
        job=os.environ.get(environment.JOB),
        log=os.environ.get(environment.LOG),
        share=int(os.environ.get(environment.DEVICE_SHARE, "1")),
    )


def read_heartbeat(folder: Path) -> Beat | None:
    """Read the last beat of a run; None if there is none or it is damaged."""
    try:
        return Beat.model_validate(read_json(folder / PROGRESS_FILE, owner=folder.name))
    except (OSError, ValueError):
        return None


def is_alive(beat: Beat, folder: Path) -> bool:
    """Return True if a run is still going: its beat is fresh and, on this machine, its process exists.

    The clock of another machine may be wrong. Its beat counts as fresh too if the file's own time is, which the file
    server sets. A time in the future by more than STALE_AFTER is as old as one in the past.
    """
    if beat.state == "interrupted":
        return False
    if beat.machine == socket.gethostname():
        return _is_fresh(beat.updated) and is_process_alive(beat.pid)
    return _is_fresh(beat.updated) or _is_fresh(read_file_time(folder / PROGRESS_FILE))


def _is_fresh(moment: float) -> bool:
    return abs(time.time() - moment) <= STALE_AFTER


def read_live_heartbeat(folder: Path) -> Beat | None:
    """Read the last beat of a run that is still going, else return None."""
    beat = read_heartbeat(folder)
    return beat if beat is not None and is_alive(beat, folder) else None


def is_process_alive(pid: int) -> bool:
    """Return True if a process of this machine exists and is no zombie."""
    try:
        os.kill(pid, 0)  # psutil does not see other users' processes where the system hides them
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
    except (PermissionError, psutil.AccessDenied):  # another user's
        return True


@pydantic.dataclasses.dataclass(config=ConfigDict(strict=True, extra="ignore", defer_build=True))
class Submission:
    """A job array of SLURM that was submitted for a sweep's runs: any of its jobs may carry out any of them."""

    job: str  # the array's id
    runs: list[str]  # the names of the runs' folders
    submitted: float  # when, in seconds since 1970

    def save(self, output_dir: str | Path) -> None:
        write_json(jobs_folder(output_dir) / f"array-{self.job}.json", asdict(self))


def find_queued_jobs(output_dir: str | Path) -> Mapping[str, Submission]:
    """Find the submissions of which a job is still waiting or running, by the names of their runs' folders."""
    submissions = read_submissions(output_dir)
    in_slurm = list_slurm_arrays() if submissions else set()
    return {name: submission for submission in submissions if submission.job in in_slurm for name in submission.runs}


def read_submissions(output_dir: str | Path) -> list[Submission]:
    """Read all submissions of an output folder, oldest first; damaged ones are left out, and named once."""
    submissions = []
    for file in jobs_folder(output_dir).glob("array-*.json"):
        try:
            submissions.append(Submission(**read_json(file, RECORD_LIMIT)))
        except (OSError, ValueError, TypeError):
            print_note_once(f"{file} is damaged: its runs do not count as queued; remove it when its jobs have ended")
    return sorted(submissions, key=lambda submission: submission.submitted)


def list_slurm_arrays() -> set[str]:
    """List the ids of this user's job arrays that wait or run; none where SLURM isn't installed."""
    if shutil.which("squeue") is None:
        return set()
    command = ["squeue", "--me", "--noheader", "--format=%F"]
    with doing("asking SLURM for its jobs (squeue)"):
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(answer.stdout.split())


RUN_STATES = ("done", "failed", "running", "queued", "interrupted", "missing", "damaged")
OPEN_STATES = ("interrupted", "missing")  # a sweep starts runs in these states, and with retry_failed failed ones


def add_state(run: Run, queue: Mapping[str, Submission]) -> Run:
    """Return a copy of a run with its state, one of RUN_STATES, and its last heartbeat.

    ``queue`` is what `find_queued_jobs` finds. A failed run that a process is trying again is running; one for which
    a job was submitted after the failure is queued.
    """
    if run.trouble:
        return replace(run, state="damaged", beat=None)
    if run.record is not None and run.record.status != "failed":
        return replace(run, state="done", beat=None)
    beat = read_heartbeat(run.folder.path)
    if beat is not None and is_alive(beat, run.folder.path):
        return replace(run, state="running", beat=beat)
    submission = queue.get(run.folder.path.name)
    if submission and submission.submitted > run.folder.read_end_time():
        return replace(run, state="queued", beat=beat)
    if run.record is not None:
        return replace(run, state="failed", beat=None)
    return replace(run, state="missing" if beat is None else "interrupted", beat=beat)


def add_states(runs: list[Run]) -> list[Run]:
    """Return copies of the runs with their states; the queue is asked once."""
    queue = find_queued_jobs(runs[0].cfg.output_dir) if runs else {}
    return [add_state(run, queue) for run in runs]


def format_state_counts(runs: Iterable[Run]) -> str:
    """Format how many runs are in each state: ``12 runs: 3 done, 1 failed, 8 missing``."""
    counts = Counter(run.state for run in runs)
    total = sum(counts.values())
    phrases = [f"{counts[name]} {name}" for name in RUN_STATES if counts[name]]
    return f"{total} run{'s' if total != 1 else ''}: {', '.join(phrases) or 'none'}"
