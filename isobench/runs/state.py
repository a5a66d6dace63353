"""What has become of every run of a sweep."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from isobench.runs import heartbeat, jobs
from isobench.runs.jobs import QueuedJob
from isobench.runs.row import Row

RUN_STATES = ("done", "failed", "running", "queued", "interrupted", "missing", "damaged")
OPEN_STATES = ("interrupted", "missing")  # what a sweep has to start; with retry_failed the failed ones too


@dataclass(frozen=True)
class RunState:
    """One of STATES; of a run that was ever started, its last heartbeat; of a queued one, its job."""

    name: str
    beat: dict[str, Any] | None = None
    job: str | None = None

    @property
    def was_killed(self) -> bool:
        """True if the run's process died without being asked to: kill -9, out of memory, a power cut."""
        return self.name == "interrupted" and self.beat is not None and self.beat["state"] != "interrupted"


def find_run_state(row: Row, queue: Mapping[str, QueuedJob]) -> RunState:
    """A run's state, from its record, its heartbeat and the jobs that wait for it (by folder name).

    What is at work on a run, or was queued for it after it failed, counts for more than its failure.
    """
    if row.trouble:
        return RunState("damaged")
    if row.record is not None and row.record["status"] != "failed":
        return RunState("done")
    beat = heartbeat.read_heartbeat(row.folder.path)
    if beat is not None and heartbeat.is_alive(beat):
        return RunState("running", beat, beat["job"])
    waiting = queue.get(row.folder.path.name)
    if waiting and waiting.since > row.folder.read_end_time():
        return RunState("queued", beat, waiting.job)
    if row.record is not None:
        return RunState("failed")
    return RunState("missing" if beat is None else "interrupted", beat)


def find_run_states(rows: list[Row]) -> list[RunState]:
    """The state of every run; the queue is asked once."""
    waiting = jobs.find_queued_jobs(rows[0].cfg.output_dir) if rows else {}
    return [find_run_state(row, waiting) for row in rows]


def add_states(rows: list[Row]) -> list[Row]:
    """Return copies of the rows that name their run's state in ``state``; the queue is asked once.

    Raises:
        UserError: SLURM is here and does not answer.
    """
    return [replace(row, state=state.name) for row, state in zip(rows, find_run_states(rows), strict=True)]


def format_state_counts(states: Iterable[RunState]) -> str:
    """Counts in words: ``12 runs: 3 done, 1 failed, 8 missing``."""
    found = Counter(state.name for state in states)
    total = sum(found.values())
    parts = [f"{found[name]} {name}" for name in RUN_STATES if found[name]]
    return f"{total} run{'s' if total != 1 else ''}: {', '.join(parts) or 'none'}"
