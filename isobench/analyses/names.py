"""Name the parts of an analysis's runs so that tables and figures can tell them apart."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from isobench.common.errors import UserError
from isobench.runs.grouping import find_varying_settings, list_setting_values, read_run_names
from isobench.runs.row import Row


class SubjectNames(NamedTuple):
    """What tables and figures call a subject's parts."""

    encoder: str
    task: str
    method: str


def needs_training(analysis: dict[str, Any]) -> bool:
    """Whether an analysis is of trained runs."""
    return bool(analysis.get("trains", False))


def name_subjects(rows: Sequence[Row]) -> list[SubjectNames]:
    """What tables and figures call each run's encoder, task and method: with the settings that tell them apart.

    Raises:
        UserError: two that nothing but a seed, or nothing that an analysis reads, tells apart.
    """
    varying = find_varying_settings(list(rows))
    found = []
    for row in rows:
        names = dict(zip(("task", "encoder", "calibration"), read_run_names(row.cfg), strict=True))
        for setting, value in zip(varying, list_setting_values(row.cfg, varying), strict=True):
            section, _, key = setting.partition(".")
            part = section if section in names else "task"
            names[part] += f" {key}={value}" if value != "-" else ""
        found.append(SubjectNames(names["encoder"], names["task"], names["calibration"]))
    if len(set(found)) < len(found) and not needs_training(rows[0].cfg.analysis):
        raise UserError("an analysis without training has one seed: leave out seed=..., or give one")
    return found
