"""Name an analysis's encoders, tasks and methods so that tables and figures tell them apart.

A subject is one run as an analysis sees it: an encoder on a task under a method.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from isobench.common.errors import UserError
from isobench.runs.grouping import find_varying_settings, list_setting_values, read_run_names
from isobench.runs.run import Run


class SubjectNames(NamedTuple):
    """The names of a subject's encoder, task and method in tables and figures."""

    encoder: str
    task: str
    method: str


def needs_training(analysis: dict[str, Any]) -> bool:
    """True if an analysis reads trained runs."""
    return bool(analysis.get("trains", False))


def name_subjects(rows: Sequence[Run]) -> list[SubjectNames]:
    """Name each run's encoder, task and method, in the order of ``rows``.

    Append the settings in which runs of the same task, encoder and method differ: those of encoder and calibration to
    their own name, all others to the task's.

    Raises:
        UserError: two runs of an analysis without training get the same names, as runs do that differ in seeds only.
    """
    varying = find_varying_settings(list(rows))
    subject_names = []
    for row in rows:
        names = dict(zip(("task", "encoder", "calibration"), read_run_names(row.cfg), strict=True))
        for setting, value in zip(varying, list_setting_values(row, varying), strict=True):
            section, _, key = setting.partition(".")
            named = section if section in names else "task"
            names[named] += f" {key}={value}" if value != "-" else ""  # "-": this run has no such setting
        subject_names.append(SubjectNames(names["encoder"], names["task"], names["calibration"]))
    if len(set(subject_names)) < len(subject_names) and not needs_training(rows[0].cfg.analysis):
        raise UserError("an analysis that trains nothing takes one seed only: leave out seed=..., or give one value")
    return subject_names
