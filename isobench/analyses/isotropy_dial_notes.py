"""What a reader of the study ``isotropy_dial`` must know: its progress, its preregistration, its power, its seeds."""

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from isobench.analyses.isotropy_dial_rows import DIALS, FINISHED, GIVEN_DIAL, WHOLE, collect_all_series, list_groups
from isobench.analyses.rows import TidyRow
from isobench.common.files import sha256_file
from isobench.common.provenance import run_git
from isobench.common.resources import experiments_dir
from isobench.report.effects import ALPHA, POWER

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

STUDY_FOLDER = Path(experiments_dir()) / "isotropy_dial"


def describe_progress(subjects: Sequence["Subject"]) -> str:
    """Return what the titles of an incomplete study begin with; empty if all planned runs finished."""
    finished = sum(has_finished(subject) for subject in subjects)
    return "" if finished == len(subjects) else f"INCOMPLETE: {finished} of {len(subjects)} runs. "


def has_finished(subject: "Subject") -> bool:
    """True if a run has ended and did not fail."""
    return subject.record is not None and subject.record.status == FINISHED


def describe_study(subjects: Sequence["Subject"]) -> list[str]:
    """Describe how much of the study was run, when it was preregistered, and how strong its tests are."""
    return [
        *count_runs(subjects),
        *describe_preregistration(subjects, STUDY_FOLDER / "preregistration.md"),
        *describe_power(STUDY_FOLDER / "power.json"),
    ]


def count_runs(subjects: Sequence["Subject"]) -> list[str]:
    """Count finished and failed runs of those planned, by encoder and task; a line for each."""
    notes = []
    grid = subjects[0].cfg.experiment.grid.get(subjects[0].cfg.scale, [])
    in_grid = sum(math.prod(len(values) for key, values in part.items() if key != "encoder") for part in grid)
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(f"{subject.encoder}, {subject.task}", []).append(subject)
    for name, group in groups.items():
        finished = sum(map(has_finished, group))
        failed = sum(subject.record is not None for subject in group) - finished
        text = f"{name}: {finished} of {len(group)} planned runs finished"
        text += f", {failed} failed" if failed else ""
        text += f" (the experiment's own grid has {in_grid})" if in_grid != len(group) else ""
        notes.append(f"{text}.")
    strange = sum(all(dial.read_dose(subject.cfg.calibration) is None for dial in DIALS) for subject in subjects)
    return notes + ([f"{strange} runs are no dose of a dial and are left out."] if strange else [])


def describe_preregistration(subjects: Sequence["Subject"], file: Path) -> list[str]:
    """Put the commits of the preregistration beside the first run; warn if the run is older than one of them.

    The first run is the one that began first, by the time of its record's file and the seconds that it took.
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
    except (OSError, subprocess.SubprocessError, IndexError):  # an installed package, or the file is in no commit
        return [f"{file.name}: sha256 {sha256_file(file)}, in no commit; {run}."]
    notes = [
        f"{file.name}: first commit {oldest[:12]} of {format_time(float(written))}, "
        f"last commit {last[:12]} of {format_time(float(changed))}; {run}."
    ]
    if start < float(written):
        notes.append(f"WARNING: the first run is older than {file.name}: nothing was preregistered.")
    elif start < float(changed):
        notes.append(f"WARNING: {file.name} was changed after the first run: its last section must say how and why.")
    return notes


def find_start(subject: "Subject") -> float:
    """Return when a run with a record began, in seconds since 1970."""
    assert subject.record is not None
    return subject.folder.result_file.stat().st_mtime - subject.record.cost.seconds


def format_time(seconds: float) -> str:
    """Write a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def describe_power(file: Path) -> list[str]:
    """Describe the simulation of the study: its false positives, its coverage, and the slopes that it can find."""
    try:
        power = json.loads(file.read_text(encoding="utf-8"))
        false, covered = (list_numbers(power[name], "{:.1%}") for name in ("false_positives", "coverage"))
        smallest = {
            f"{row['encoder']}, {row['dial']}": row["points_over_the_dial"] for row in power["smallest_slopes"]
        }
        title = f"{power['studies']:,} simulated studies"
        return [
            f"{title}: false positives at p < {ALPHA}: {false}.",
            f"{title}: true values that 95% intervals hold: {covered}.",
            f"{title}: smallest effect of a whole dial that {POWER:.0%} of them find after Holm's correction, in "
            f"points: {list_numbers(smallest, '{:.2f}')}.",
        ]
    except OSError:
        return [f"There is no {file.name}: benchmarks/power.py simulates the study and writes it."]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [f"{file.name} can't be read: write it again by benchmarks/power.py."]


def list_numbers(numbers: Mapping[str, float], form: str) -> str:
    """Write numbers with their names in one line."""
    return ", ".join(f"{name} {form.format(number)}" for name, number in numbers.items())


def list_notes(rows: Sequence[TidyRow], slopes: Sequence[TidyRow], correlations: Sequence[TidyRow]) -> list[str]:
    """Write how the numbers are made, over how many tests Holm's correction is, and which seeds are left out."""
    tested = [sum(not math.isnan(row["p"]) for row in family) for family in (
        [row for row in slopes if row["quantity"] == "score" and row["doses"] == WHOLE],
        [row for row in correlations if row["kind"] == GIVEN_DIAL],
    )]  # fmt: skip
    left_out = [
        f"Left out of {dial.label} on {encoder}, {task}: "
        + "; ".join(f"seed {seed} ({reason})" for seed, reason in series[dial.name].left_out.items())
        for encoder, task in list_groups(rows)
        for series in [collect_all_series(rows, encoder, task)]
        for dial in DIALS
        if dial.name in series and series[dial.name].left_out
    ]
    return [
        "Every statistic is computed for each seed by itself; intervals and p are Student's t over the seeds.",
        f"Holm's correction is over {tested[0]} slopes of the score, and {tested[1]} correlations given the dial.",
        "A unit of dose: " + ", ".join(f"{dial.label}: {dial.unit}" for dial in DIALS) + ".",
        *left_out,
    ]
