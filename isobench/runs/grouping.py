"""Group runs: which settings tell them apart, and which differ from each other in their seeds only."""

from typing import Any

from isobench.config.schema import Config, method_name, parts
from isobench.papers.scale import scale_notes
from isobench.runs.identity import NOT_IN_KEY, plain
from isobench.runs.row import Row

PARTS = ("task.generation", "encoder.scratch")  # settings that have settings, null where there are none
SECTIONS = ("task", "encoder", "calibration", "head", "optimization", "trainer")  # of a config, that may vary


def names(cfg: Config) -> tuple[str, str, str]:
    """Task, encoder and method: what a line of the table is called."""
    return cfg.task.name, cfg.encoder.name, method_name(cfg.calibration)


def varying_settings(rows: list[Row]) -> list[str]:
    """Settings, dotted, in which runs of the same task, encoder and method differ: each gets a column."""
    same: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for row in rows:
        values = same.setdefault(names(row.cfg), {})
        for key, value in settings(row.cfg).items():
            values.setdefault(key, set()).add(str(value))
    found: dict[str, None] = {}
    for values in same.values():
        found.update({key: None for key, seen in values.items() if len(seen) > 1})
    return list(found)


def settings(cfg: Config) -> dict[str, Any]:
    """Every setting that may vary, by its dotted name."""
    found = {f"{name}.{key}": value for name in SECTIONS for key, value in plain(getattr(cfg, name)).items()}
    for key in NOT_IN_KEY["trainer"]:  # how fast, not what
        del found[f"trainer.{key}"]
    for part in PARTS:
        found |= {f"{part}.{key}": value for key, value in (plain(found.pop(part)) or {}).items()}
    for depth, method in enumerate(parts(cfg.calibration)):
        found |= {f"calibration.{'then.' * depth}{key}": value for key, value in method.items()}
    found.pop("calibration.then", None)  # its settings are there one by one
    return found


def groups(rows: list[Row], varying: list[str]) -> list[list[Row]]:
    """Runs that differ in their seeds only, in order of appearance."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (*names(row.cfg), *chosen(row.cfg, varying))
        found.setdefault(key, []).append(row)
    return list(found.values())


def differences(row: Row) -> list[str]:
    """Why a run is not at the paper's scale."""
    return row.record["scale"]["differs"] if row.record else scale_notes(row.cfg)


def chosen(cfg: Config, varying: list[str]) -> list[str]:
    """A run's values of the varying settings, a dash where a method has no such setting."""
    values = settings(cfg)
    return [str(values.get(name, "-")) for name in varying]
