"""Count how much of the study ``isotropy_dial`` was run, for each encoder and task against the experiment's own grid.

What was typed does not count: a sweep of three seeds is incomplete, even if all of its own runs have ended. The
preregistration takes only the complete study of a task and encoder as a result.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isobench.analyses.rows import TidyRow
from isobench.config.schema import Config
from isobench_papers.isotropy_dial.rows import DIALS, FINISHED, PLAIN, Group

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

Run = tuple[tuple[tuple[str, float], ...], int]  # the (dial, dose) pairs that a run stands for, and its seed


@dataclass(frozen=True)
class Progress:
    """Hold how much of the grid was run on one encoder and task.

    Attributes:
        grid: all runs of the experiment's own grid.
        finished: those that ended with a score.
        failed: those that ended without one.
        added: the number of planned runs that the grid does not have.
    """

    grid: frozenset[Run]
    finished: frozenset[Run]
    failed: frozenset[Run]
    added: int

    @property
    def is_complete(self) -> bool:
        """Return True if every run of the grid has ended; failed runs have, and leave out their seeds."""
        return len(self.finished | self.failed) == len(self.grid)

    @property
    def label(self) -> str:
        """Return what tables and figures call it: empty if it is complete."""
        return "" if self.is_complete else f"INCOMPLETE: {self.count}"

    @property
    def count(self) -> str:
        """Say how many runs finished, and how many failed."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{len(self.finished)} of {len(self.grid)} runs finished{failed}"

    @property
    def seeds_not_begun(self) -> list[int]:
        """Return the seeds of the grid of which no run has ended, ascending."""
        return sorted({seed for _, seed in self.grid} - {seed for _, seed in self.finished | self.failed})


def measure_progress(subjects: Sequence["Subject"]) -> dict[Group, Progress]:
    """Measure the progress of each encoder and task that has a planned run of a dial."""
    grid = list_grid_runs(subjects[0].cfg)
    planned: dict[Group, dict[Run, Subject]] = {}
    for subject in subjects:
        if doses := list_doses(subject.cfg.calibration):
            planned.setdefault((subject.encoder, subject.task), {})[doses, subject.cfg.seed] = subject
    return {group: count_runs(grid or frozenset(runs), runs) for group, runs in planned.items()}


def count_runs(grid: frozenset[Run], runs: Mapping[Run, "Subject"]) -> Progress:
    """Count the runs of one encoder and task; ``runs``: the planned ones."""
    ended = {run: subject.record.status for run, subject in runs.items() if subject.record is not None}
    finished = frozenset(run for run, status in ended.items() if status == FINISHED)
    return Progress(grid, finished & grid, (frozenset(ended) - finished) & grid, len(runs.keys() - grid))


def list_grid_runs(cfg: Config) -> frozenset[Run]:
    """List the runs of the experiment's own grid on one encoder; empty for an experiment without a grid."""
    runs = set()
    for part in cfg.experiment.grid.get(cfg.scale, []):
        for values in itertools.product(*part.values()):
            cell = dict(zip(part, values, strict=True))
            prefix = "calibration."
            own = {key.removeprefix(prefix): value for key, value in cell.items() if key.startswith(prefix)}
            if doses := list_doses({"name": cell.get("calibration", PLAIN), **own}):
                runs.add((doses, cell.get("seed", cfg.seed)))
    return frozenset(runs)


def list_doses(calibration: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """List the dials and doses that a calibration stands for: three for plain fine-tuning, none for other methods."""
    doses = ((dial.name, dial.read_dose(calibration)) for dial in DIALS)
    return tuple((name, dose) for name, dose in doses if dose is not None)


def keep_grid_runs(rows: Sequence[TidyRow], progress: Mapping[Group, Progress]) -> list[TidyRow]:
    """Drop the rows of runs that were added to a complete grid: a study does not grow after its result.

    An incomplete study keeps them, because it has no result yet. Each row gets the column ``complete``.
    """
    cells = {
        group: {(dial, dose, seed) for doses, seed in own.grid for dial, dose in doses}
        for group, own in progress.items()
        if own.is_complete
    }
    kept = []
    for row in rows:
        group = row["encoder"], row["task"]
        if group not in cells or (row["dial"], row["dose"], row["seed"]) in cells[group]:
            kept.append({**row, "complete": group in cells})
    return kept


def describe_progress(progress: Mapping[Group, Progress]) -> list[str]:
    """Describe how much of each encoder and task was run, in a line each."""
    notes = []
    for (encoder, task), own in progress.items():
        text = f"{encoder}, {task}: {own.count if own.is_complete else own.label}"
        if seeds := own.seeds_not_begun:
            text += f"; seed{'s' * (len(seeds) > 1)} {list_ranges(seeds)}: not yet run"
        if own.added:
            text += f"; {own.added} runs are not in the grid"
            text += " and are left out" if own.is_complete else ""
        notes.append(f"{text}.")
    return notes


def list_ranges(numbers: Sequence[int]) -> str:
    """Write ascending whole numbers, with neighbours as a range: "1, 3 to 10"."""
    texts = []
    for _, several in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in several]
        texts.append(f"{members[0]} to {members[-1]}" if len(members) > 2 else ", ".join(map(str, members)))
    return ", ".join(texts)
