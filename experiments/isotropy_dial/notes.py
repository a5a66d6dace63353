"""Tell what to know of the study ``isotropy_dial``: its progress, its preregistration, its power, its seeds."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isobench.analyses.rows import TidyRow, select_rows
from isobench_papers.isotropy_dial.power import describe_power
from isobench_papers.isotropy_dial.preregistration import describe_preregistration
from isobench_papers.isotropy_dial.progress import Progress, describe_progress, list_grid_runs
from isobench_papers.isotropy_dial.rows import DIALS, GIVEN_DIAL, WHOLE, Group, collect_all_series, list_groups

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

STUDY_FOLDER = Path(__file__).parent


def describe_study(subjects: Sequence["Subject"], progress: Mapping[Group, Progress]) -> list[str]:
    """Describe how much of the study was run, when it was preregistered, and how strong its tests are."""
    strange = sum(all(dial.read_dose(subject.cfg.calibration) is None for dial in DIALS) for subject in subjects)
    return [
        *describe_progress(progress),
        *([f"{strange} runs are no dose of a dial and are left out."] if strange else []),
        *describe_preregistration(subjects, STUDY_FOLDER / "preregistration.md"),
        *describe_power(STUDY_FOLDER / "power.json", list_grid_runs(subjects[0].cfg)),
    ]


def list_notes(rows: Sequence[TidyRow], slopes: Sequence[TidyRow], correlations: Sequence[TidyRow]) -> list[str]:
    """Write how the numbers are made, over how many tests Holm's correction is, and which seeds are left out."""
    tested = [sum(not math.isnan(row["p_holm"]) for row in family) for family in (
        [row for row in slopes if row["quantity"] == "score" and row["doses"] == WHOLE],
        [row for row in correlations if row["kind"] == GIVEN_DIAL],
    )]  # fmt: skip
    family = f"{tested[0]} slopes of the score, and {tested[1]} correlations given the dial"
    has_result = any(row["complete"] for row in rows)
    return [
        "Every statistic is computed for each seed by itself; intervals and p are Student's t over the seeds. They "
        "are for new seeds with these training and dev examples, not for other examples; one secondary table has "
        "intervals for new dev examples too, where runs have predictions and the score is the accuracy.",
        f"Holm's correction is over {family}, of complete studies only."
        if has_result
        else f"PROVISIONAL: no study is complete. Until one is, Holm's correction is over {family}.",
        "A unit of dose: " + ", ".join(f"{dial.label}: {dial.unit}" for dial in DIALS) + ".",
        *list_left_out(rows),
    ]


def list_left_out(rows: Sequence[TidyRow]) -> list[str]:
    """List the seeds that each dial leaves out, of the seeds of which some run has ended, and why."""
    notes = []
    for encoder, task in list_groups(rows):
        own = select_rows(rows, {"encoder": encoder, "task": task})
        begun = {row["seed"] for row in own if row["state"] != "missing"}
        for name, series in collect_all_series(own, encoder, task).items():
            label = next(dial.label for dial in DIALS if dial.name == name)
            reasons = [f"seed {seed} ({reason})" for seed, reason in series.left_out.items() if seed in begun]
            if reasons:
                notes.append(f"Left out of {label} on {encoder}, {task}: {'; '.join(reasons)}.")
    return notes
