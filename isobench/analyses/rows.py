"""The rows of an analysis: lists of dicts from column to value, one dict an observation.

They are named after subjects. A subject is one run as an analysis sees it: an encoder on a task under a method.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isobench.analyses.shown import Rows
from isobench.common.errors import doing, refuse
from isobench.common.files import RECORD_LIMIT, read_bounded, read_json
from isobench.runs.folder import ABOUT_FILE
from isobench.runs.grouping import find_varying_settings, read_run_names, read_settings
from isobench.runs.run import Run

if TYPE_CHECKING:  # importing it takes time
    import pyarrow

TidyRow = dict[str, Any]


def select_rows(rows: Iterable[TidyRow], selection: Mapping[str, Any]) -> list[TidyRow]:
    """Return the rows that have the selection's value in each of its columns, in their order."""
    return [row for row in rows if all(row[column] == value for column, value in selection.items())]


def list_distinct(rows: Iterable[TidyRow], column: str) -> list[Any]:
    """List the distinct values of a column, in the order in which they first appear."""
    return list(dict.fromkeys(row[column] for row in rows))


def group_rows(rows: Iterable[TidyRow], *columns: str) -> dict[tuple[Any, ...], list[TidyRow]]:
    """Group rows by their values in some columns: values -> rows, in the order in which values first appear."""
    groups: dict[tuple[Any, ...], list[TidyRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def name_panel(row: TidyRow) -> str:
    """Name the panel of a row's encoder and task."""
    return f"{row['encoder']}, {row['task']}"


def select_subject(rows: Iterable[TidyRow], subject: TidyRow) -> list[TidyRow]:
    """Return the rows with a row's encoder and task."""
    return select_rows(rows, {"encoder": subject["encoder"], "task": subject["task"]})


class SubjectNames(NamedTuple):
    """The names of a subject's encoder, task and method in tables and figures."""

    encoder: str
    task: str
    method: str


def needs_training(analysis: dict[str, Any]) -> bool:
    """True if an analysis reads trained runs."""
    return bool(analysis.get("trains", False))


def name_subjects(runs: Sequence[Run]) -> list[SubjectNames]:
    """Name each run's encoder, task and method, in the order of ``runs``.

    Append the settings in which runs of the same task, encoder and method differ: those of encoder and calibration to
    their own name, all others to the task's. UserError if runs of an analysis without training differ in seeds only.
    """
    subject_names = []
    for run, values in zip(runs, read_settings(runs, find_varying_settings(list(runs))), strict=True):
        names = dict(zip(("task", "encoder", "calibration"), read_run_names(run.cfg), strict=True))
        for setting, value in values.items():
            section, _, key = setting.partition(".")
            part_of_name = section if section in names else "task"
            names[part_of_name] += f" {key}={value}" if value != "-" else ""  # "-": this run has no such setting
        subject_names.append(SubjectNames(names["encoder"], names["task"], names["calibration"]))
    are_alike = len(set(subject_names)) < len(subject_names) and not needs_training(runs[0].cfg.analysis)
    refuse((are_alike, "an analysis that trains nothing takes one seed only: leave out seed=..., or give one value"))
    return subject_names


def read_claimed_rows(folder: Path, name: str) -> tuple[list[TidyRow], list[str]] | None:
    """Read rows that a claim is judged by, and how their setting differs from the paper's; None if there are none."""
    if not os.path.lexists(folder / ABOUT_FILE):
        return None
    about = read_json(folder / ABOUT_FILE, RECORD_LIMIT)
    return read_stored_rows(folder, [name])[name], list(about["scale"]["differs"])


def make_tables(rows: Rows) -> "dict[str, pyarrow.Table]":
    """Make the tables that are written as Parquet: name -> table."""
    from isobench.common.tidy import make_table

    tables = {}
    for name, observations in rows.items():
        with doing(f"making a table of the rows {name}"):  # a column may mix types
            tables[name] = make_table(observations)
    return tables


def read_stored_rows(folder: Path, names: Iterable[str] | None = None) -> Rows:
    """Read the rows that an analysis wrote, some of them or all; ValueError if a file was changed since."""
    import pyarrow.parquet

    digests = read_json(folder / ABOUT_FILE, RECORD_LIMIT)["sha256"]
    rows = {}
    for name in names or [Path(file).stem for file in digests if file.endswith(".parquet")]:
        content = read_bounded(folder / f"{name}.parquet", RECORD_LIMIT)
        if hashlib.sha256(content).hexdigest() != digests.get(f"{name}.parquet"):
            raise ValueError(f"{name}.parquet was changed after the analysis wrote it")
        rows[name] = pyarrow.parquet.read_table(pyarrow.BufferReader(content)).to_pylist()
    return rows


def read_about(folder: Path) -> dict[str, Any] | None:
    """Read a folder's about.json; None if it is absent, damaged or changed."""
    try:
        return read_json(folder / ABOUT_FILE, RECORD_LIMIT)
    except (OSError, ValueError):
        return None
