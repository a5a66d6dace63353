"""What the study ``isotropy_dial`` planned: its grid, its preregistration, its power; and what was run of it.

What was typed does not count: a sweep of three seeds is incomplete, even if all of its own runs have ended. The
preregistration takes only the complete study of a task and encoder as a result.
"""

import itertools
import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isobench.analyses.rows import TidyRow, group_rows
from isobench.common.environment import run_git
from isobench.common.errors import UserError
from isobench.common.files import sha256_file
from isobench.config.schema import Config, format_method_name
from isobench.runs.identity import KEY_SECTIONS, drop_targets_of_chain, select_decisive, to_plain
from isobench.statistics.seeds import ALPHA, POWER
from isobench_papers.isotropy_dial.rows import DIAL, DIALS, FINISHED, PLAIN, Group

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

ANALYSIS_FILES = (  # what computes and defines the study, in the checkout
    "experiments/isotropy_dial/*.py", "experiments/isotropy_dial/experiment/*.yaml",
    "isobench/statistics/dose_response.py",
    "isobench/analyses/isotropy_dial*.py", "conf/experiment/isotropy_dial.yaml",  # where they were before
)  # fmt: skip
MIN_COVERAGE = 0.94  # 95% intervals that hold the true value less often are said to be too narrow
Settings = dict[str, Any]  # dotted name -> value
Run = tuple[tuple[tuple[str, float], ...], int]  # the (dial, dose) pairs that a run stands for, and its seed


def refuse_mixed_settings(subjects: Sequence["Subject"]) -> None:
    """Raise UserError if a dose and a seed are not all that tells apart the runs of an encoder and task.

    Runs of one method with other settings have other names already (`isobench.analyses.names.name_subjects`). What is
    left are settings that differ between methods, settings of a method other than the dose, and the seeds of single
    random streams.
    """
    compared: dict[tuple[Any, ...], list[Settings]] = {}  # of one dose and seed; of a group; of a dial in a group
    for subject in subjects:
        group, cfg = f"{subject.encoder}, {subject.task}", subject.cfg
        sections = {name: select_decisive(name, getattr(cfg, name)) for name in KEY_SECTIONS}
        sections |= {"seed": {}, "calibration": {}, "seeds": to_plain(cfg.seeds)}
        shared = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
        own = {f"calibration.{name}": v for name, v in drop_targets_of_chain(dict(cfg.calibration)).items()}
        for name, dose in list_doses(cfg.calibration):
            dial = DIAL[name]
            compared.setdefault((group, dial.label, dose, cfg.seed), []).append(shared | own)
            compared.setdefault((group,), []).append(shared)
            if format_method_name(dict(cfg.calibration)) != PLAIN:
                others = {name: v for name, v in own.items() if name != f"calibration.{dial.setting}"}
                compared.setdefault((f"{group}, {dial.label}",), []).append(others)
    for (name, *place), several in sorted(compared.items(), key=lambda item: -len(item[0])):
        difference = find_difference(several)
        if place and len(several) > 1:
            label, dose, seed = place
            raise UserError(
                f"{name}: {len(several)} runs are dose {dose:g} of {label} with seed {seed}; they differ in "
                f"{difference or 'their data or weights'}: name the settings of one on the command line"
            )
        if difference:
            raise UserError(
                f"{name}: the runs differ in {difference}, not only in the dose: name one value on the command line"
            )


def find_difference(several: Sequence[Settings]) -> str:
    """Find the first setting in which runs differ, with its values: "task.train_samples (512, 1000)"; or empty."""
    for name in dict.fromkeys(name for one in several for name in one):
        values = list(dict.fromkeys(str(one.get(name)) for one in several))
        if len(values) > 1:
            return f"{name} ({', '.join(values)})"
    return ""


def measure_progress(subjects: Sequence["Subject"]) -> list[TidyRow]:
    """Count the planned runs of each encoder and task that has one; without a grid, its runs are the grid.

    ``failed`` runs ended without a score, ``added`` ones are not in the grid, ``strange`` ones are no dose of a dial.
    """
    groups: dict[Group, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault((subject.encoder, subject.task), []).append(subject)
    rows = []
    for (encoder, task), several in groups.items():
        doses = [list_doses(subject.cfg.calibration) for subject in several]
        runs = {(own, subject.cfg.seed): subject for own, subject in zip(doses, several, strict=True) if own}
        if not runs:
            continue
        grid = list_grid_runs(subjects[0].cfg) or frozenset(runs)
        ended = {run: runs[run].record.status for run in grid & runs.keys() if runs[run].record is not None}
        finished = list(ended.values()).count(FINISHED)
        rows.append({
            "encoder": encoder,
            "task": task,
            "grid": len(grid),
            "finished": finished,
            "failed": len(ended) - finished,
            "added": len(runs.keys() - grid),
            "strange": doses.count(()),
            "seeds_not_begun": list_ranges(sorted({seed for _, seed in grid} - {seed for _, seed in ended})),
        })  # fmt: skip
    return rows


def list_complete(progress: Sequence[TidyRow]) -> list[Group]:
    """List the encoders and tasks of which every run of the grid has ended; failed runs have, and leave out seeds."""
    return [(row["encoder"], row["task"]) for row in progress if not label_progress(row)]


def list_grid_runs(cfg: Config) -> frozenset[Run]:
    """List the runs of the experiment's own grid on one encoder; empty for an experiment without a grid."""
    runs = set()
    for part in cfg.experiment.grid.get(cfg.scale, []):
        for values in itertools.product(*part.values()):
            cell = {key.removeprefix("calibration."): value for key, value in zip(part, values, strict=True)}
            if doses := list_doses(cell | {"name": cell.get("calibration", PLAIN)}):
                runs.add((doses, cell.get("seed", cfg.seed)))
    return frozenset(runs)


def list_doses(calibration: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """List the dials and doses that a calibration stands for: three for plain fine-tuning, none for other methods."""
    doses = ((dial.name, dial.read_dose(calibration)) for dial in DIALS)
    return tuple((name, dose) for name, dose in doses if dose is not None)


def keep_grid_runs(rows: Sequence[TidyRow], grid: frozenset[Run], complete: Sequence[Group]) -> list[TidyRow]:
    """Drop the rows of runs that were added to a complete grid: a study does not grow after its result.

    An incomplete study keeps them, because it has no result yet.
    """
    cells = {(dial, dose, seed) for doses, seed in grid for dial, dose in doses}
    marked = [{**row, "complete": (row["encoder"], row["task"]) in complete} for row in rows]
    return [
        row for row in marked if not grid or not row["complete"] or (row["dial"], row["dose"], row["seed"]) in cells
    ]


def list_ranges(numbers: Sequence[int]) -> str:
    """Write ascending whole numbers, with neighbours as a range: "1, 3 to 10"."""
    texts = []
    for _, several in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in several]
        texts.append(f"{members[0]} to {members[-1]}" if len(members) > 2 else ", ".join(map(str, members)))
    return ", ".join(texts)


def list_design(cfg: Config) -> list[TidyRow]:
    """List the doses of the grid: a row for each, with its number of seeds."""
    seeds = Counter(place for doses, _ in list_grid_runs(cfg) for place in doses)
    return [{"dial": dial, "dose": dose, "seeds": count} for (dial, dose), count in sorted(seeds.items())]


def list_code(subjects: Sequence["Subject"]) -> list[TidyRow]:
    """List the commits of the code that carried out runs, with the number of runs; None is an installed package."""
    code = [subject.record.provenance.git for subject in subjects if subject.record is not None]
    counts = Counter((git.commit, git.dirty) if git else (None, False) for git in code)
    return [{"commit": commit, "changed": changed, "runs": runs} for (commit, changed), runs in counts.items()]


def label_progress(row: TidyRow) -> str:
    """Say how incomplete the study of an encoder and task is; empty if it is complete."""
    return "" if row["finished"] + row["failed"] == row["grid"] else f"INCOMPLETE: {count_finished(row)}"


def count_finished(row: TidyRow) -> str:
    failed = f", {row['failed']} failed" if row["failed"] else ""
    return f"{row['finished']} of {row['grid']} runs finished{failed}"


def describe_progress(progress: Sequence[TidyRow]) -> list[str]:
    """Describe how much of each encoder and task was run, each in one note."""
    notes = []
    for row in progress:
        label, seeds = label_progress(row), row["seeds_not_begun"]
        text = f"{row['encoder']}, {row['task']}: {label or count_finished(row)}"
        if seeds:
            text += f"; seed{'s' * (not seeds.isdigit())} {seeds}: not yet run"
        if row["added"]:
            text += f"; {row['added']} runs are not in the grid{'' if label else ' and are left out'}"
        if row["strange"]:
            text += f"; {row['strange']} runs are no dose of a dial and are left out"
        notes.append(f"{text}.")
    return notes


def describe_preregistration(code: Sequence[TidyRow], file: Path) -> list[str]:
    """Put the commits of the preregistration beside the runs' code; warn if a run's code is older than one of them.

    Git's history decides: the code of a run that was preregistered has the file's commits in its history.
    """
    if not file.is_file():
        return [f"WARNING: there is no {file.name}: nothing shows that the hypotheses are older than the runs."]
    named = [
        (f"{row['commit'][:12]}{' with changes' * row['changed']}" if row["commit"] else "an installed package")
        + f" ({row['runs']} runs)"
        for row in code
    ]
    ran = f"The runs' code: {', '.join(named)}."
    try:
        log = run_git(file.parent, "log", "--format=%H %ct", "--", file.name).splitlines()  # the newest first
        (last, changed), (first, written) = (line.split() for line in (log[0], log[-1]))
        is_edited = bool(run_git(file.parent, "status", "--porcelain", "--", file.name))
    except (OSError, subprocess.SubprocessError, IndexError):  # an installed package, or the file is in no commit
        return [f"{file.name}: sha256 {sha256_file(file)}, in no commit. {ran}"]
    times = [f"{datetime.fromtimestamp(float(seconds), UTC):%Y-%m-%d %H:%M UTC}" for seconds in (written, changed)]
    notes = [
        f"{file.name}: sha256 {sha256_file(file)}, first commit {first[:12]} of {times[0]}, last commit {last[:12]} "
        f"of {times[1]}. {ran}"
    ]
    histories = {row["commit"]: list_history(file.parent, row["commit"]) for row in code if row["commit"]}
    histories = {commit: history for commit, history in histories.items() if history}
    if not all(first in history for history in histories.values()):
        notes.append(f"WARNING: there are runs that are older than {file.name}: they were not preregistered.")
    elif not all(last in history for history in histories.values()):
        notes.append(f"WARNING: {file.name} was changed after the first run: its last section must say how and why.")
    if unknown := sum(row["runs"] for row in code if row["commit"] not in histories):
        notes.append(f"The code of {unknown} runs is in no commit here: it may be older than {file.name}.")
    if is_edited:
        notes.append(f"WARNING: {file.name} has edits that are in no commit.")
    if histories:
        notes.append(
            f"Changes of the analysis since: git log {next(iter(histories))[:12]}.. of {', '.join(ANALYSIS_FILES)}."
        )
    return notes


def list_history(folder: Path, commit: str) -> set[str]:
    """List a commit and all before it; empty for one that the checkout does not have."""
    try:
        return set(run_git(folder, "rev-list", "--end-of-options", commit).split())
    except (OSError, subprocess.SubprocessError):
        return set()


def describe_power(file: Path, design: Sequence[TidyRow]) -> list[str]:
    """Quote the simulation of the study, a file that simulation/power.py wrote, if it was made for this grid."""
    doses = {dial: [row["dose"] for row in own] for (dial,), own in group_rows(design, "dial").items()}
    power = json.loads(file.read_text(encoding="utf-8"))
    shape = {"dials": doses, "seeds": max((row["seeds"] for row in design), default=0)}
    if not shape.items() <= power["shape"].items():
        return []
    title = f"{power['studies']:,} simulated studies"
    false, covered = (write_range(power[name].values(), ".1%") for name in ("false_positives", "coverage"))
    smallest = write_range([row["points_over_the_dial"] for row in power["smallest_slopes"]], ".2f")
    scenarios = {name: found["coverage"] for name, found in power["scenarios"].items()}
    low = [f"{name} {coverage:.1%}" for name, coverage in scenarios.items() if coverage < MIN_COVERAGE]
    return [
        f"{title}: false positives at p < {ALPHA}: {false}. True values that 95% intervals hold: {covered}. The "
        f"smallest effect of a whole dial that {POWER:.0%} of them find after Holm's correction: {smallest} points.",
        *([f"{title}: intervals hold too few true values where: {', '.join(low)}."] if low else []),
    ]


def write_range(numbers: Iterable[float], form: str) -> str:
    low, high = (format(limit(numbers), form) for limit in (min, max))
    return f"{low} to {high}" if low != high else low
