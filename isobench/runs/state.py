"""What has become of every run of a sweep."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from isobench.runs import heartbeat, jobs
from isobench.runs.jobs import Waiting
from isobench.runs.row import Row

STATES = ("done", "failed", "running", "queued", "interrupted", "missing", "damaged")
OPEN = ("interrupted", "missing")  # what a sweep has to start; with retry_failed the failed ones too


@dataclass(frozen=True)
class State:
    """One of STATES; of a run that was ever started, its last heartbeat; of a queued one, its job."""

    name: str
    beat: dict[str, Any] | None = None
    job: str | None = None

    @property
    def was_killed(self) -> bool:
        """True if the run's process died without being asked to: kill -9, out of memory, a power cut."""
        return self.name == "interrupted" and self.beat is not None and self.beat["state"] != "interrupted"


def state_of(row: Row, queue: Mapping[str, Waiting]) -> State:
    """A run's state, from its record, its heartbeat and the jobs that wait for it (by folder name).

    What is at work on a run, or was queued for it after it failed, counts for more than its failure.
    """
    if row.trouble:
        return State("damaged")
    if row.record is not None and row.record["status"] != "failed":
        return State("done")
    beat = heartbeat.read(row.folder.path)
    if beat is not None and heartbeat.alive(beat):
        return State("running", beat, beat["job"])
    waiting = queue.get(row.folder.path.name)
    if waiting and waiting.since > row.folder.ended_at():
        return State("queued", beat, waiting.job)
    if row.record is not None:
        return State("failed")
    return State("missing" if beat is None else "interrupted", beat)


def states_of(rows: list[Row]) -> list[State]:
    """The state of every run; the queue is asked once."""
    waiting = jobs.queue(rows[0].folder.path.parents[1]) if rows else {}
    return [state_of(row, waiting) for row in rows]


def summary(states: Iterable[State]) -> str:
    """Counts in words: ``12 runs: 3 done, 1 failed, 8 missing``."""
    found = Counter(state.name for state in states)
    total = sum(found.values())
    parts = [f"{found[name]} {name}" for name in STATES if found[name]]
    return f"{total} run{'s' if total != 1 else ''}: {', '.join(parts) or 'none'}"
