"""Tell the state of a sweep's runs from their records, their heartbeats and the jobs in the queue."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from isobench.runs import heartbeat, jobs
from isobench.runs.jobs import QueuedJob
from isobench.runs.record import Beat
from isobench.runs.run import Run

RUN_STATES = ("done", "failed", "running", "queued", "interrupted", "missing", "damaged")
OPEN_STATES = ("interrupted", "missing")  # a sweep starts runs in these states, and with retry_failed failed ones


@dataclass(frozen=True)
class RunState:
    """A run's state, one of RUN_STATES; its last heartbeat, if there is one; the job that carries it out."""

    name: str
    beat: Beat | None = None
    job: str | None = None

    @property
    def was_killed(self) -> bool:
        """True if the run's process died without saving: by SIGKILL, for lack of memory, in a power cut."""
        return self.name == "interrupted" and self.beat is not None and self.beat.state != "interrupted"


def find_run_state(row: Run, queue: Mapping[str, QueuedJob]) -> RunState:
    """Tell a run's state from its record, its heartbeat and the queued jobs.

    A failed run that a process is trying again is running; one for which a job was submitted after the failure is
    queued.

    Args:
        row: the run, with its record.
        queue: the queued jobs, by the names of their runs' folders.
    """
    if row.trouble:
        return RunState("damaged")
    if row.record is not None and row.record.status != "failed":
        return RunState("done")
    beat = heartbeat.read_heartbeat(row.folder.path)
    if beat is not None and heartbeat.is_alive(beat, row.folder.path):
        return RunState("running", beat, beat.job)
    queued_job = queue.get(row.folder.path.name)
    if queued_job and queued_job.since > row.folder.read_end_time():
        return RunState("queued", beat, queued_job.job)
    if row.record is not None:
        return RunState("failed")
    return RunState("missing" if beat is None else "interrupted", beat)


def find_run_states(rows: list[Run]) -> list[RunState]:
    """Find the state of every run; the queue is asked once.

    Raises:
        UserError: SLURM is installed and does not answer.
    """
    queue = jobs.find_queued_jobs(rows[0].cfg.output_dir) if rows else {}
    return [find_run_state(row, queue) for row in rows]


def add_states(rows: list[Run]) -> list[Run]:
    """Return copies of the rows that name their run's state in ``state``; the queue is asked once.

    Raises:
        UserError: SLURM is installed and does not answer.
    """
    return [replace(row, state=state.name) for row, state in zip(rows, find_run_states(rows), strict=True)]


def format_state_counts(states: Iterable[RunState]) -> str:
    """Format how many runs are in each state: ``12 runs: 3 done, 1 failed, 8 missing``."""
    counts = Counter(state.name for state in states)
    total = sum(counts.values())
    parts = [f"{counts[name]} {name}" for name in RUN_STATES if counts[name]]
    return f"{total} run{'s' if total != 1 else ''}: {', '.join(parts) or 'none'}"
