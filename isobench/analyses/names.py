"""Name the parts of an analysis's runs so that tables and figures can tell them apart."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from isobench.common.errors import UserError
from isobench.runs.grouping import chosen, varying_settings
from isobench.runs.grouping import names as names_in_tables
from isobench.runs.row import Row


class Names(NamedTuple):
    """What tables and figures call a subject's parts."""

    encoder: str
    task: str
    method: str


def trains(analysis: dict[str, Any]) -> bool:
    """Whether an analysis is of trained runs."""
    return bool(analysis.get("trains", False))


def names_of(rows: Sequence[Row]) -> list[Names]:
    """What tables and figures call each run's encoder, task and method: with the settings that tell them apart.

    Raises:
        UserError: two that nothing but a seed, or nothing that an analysis reads, tells apart.
    """
    varying = varying_settings(list(rows))
    found = []
    for row in rows:
        names = dict(zip(("task", "encoder", "calibration"), names_in_tables(row.cfg), strict=True))
        for setting, value in zip(varying, chosen(row.cfg, varying), strict=True):
            section, _, key = setting.partition(".")
            part = section if section in names else "task"
            names[part] += f" {key}={value}" if value != "-" else ""
        found.append(Names(names["encoder"], names["task"], names["calibration"]))
    if len(set(found)) < len(found) and not trains(rows[0].cfg.analysis):
        raise UserError("an analysis without training has one seed: leave out seed=..., or give one")
    return found
