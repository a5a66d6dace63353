"""Group runs: which settings tell them apart, and which differ from each other in their seeds only."""

from typing import Any

from isobench.config.schema import Config, format_method_name, split_chain
from isobench.papers.scale import find_scale_differences
from isobench.runs.identity import NOT_IN_KEY, to_plain
from isobench.runs.row import Row

NESTED_SETTINGS = ("task.generation", "encoder.scratch")  # settings that have settings, null where there are none
VARYING_SECTIONS = ("task", "encoder", "calibration", "head", "optimization", "trainer")  # of a config, that may vary


def read_run_names(cfg: Config) -> tuple[str, str, str]:
    """Task, encoder and method: what a line of the table is called."""
    return cfg.task.name, cfg.encoder.name, format_method_name(cfg.calibration)


def find_varying_settings(rows: list[Row]) -> list[str]:
    """Settings, dotted, in which runs of the same task, encoder and method differ: each gets a column."""
    same: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for row in rows:
        values = same.setdefault(read_run_names(row.cfg), {})
        for key, value in flatten_settings(row.cfg).items():
            values.setdefault(key, set()).add(str(value))
    found: dict[str, None] = {}
    for values in same.values():
        found.update({key: None for key, seen in values.items() if len(seen) > 1})
    return list(found)


def flatten_settings(cfg: Config) -> dict[str, Any]:
    """Every setting that may vary, by its dotted name."""
    found = {
        f"{name}.{key}": value for name in VARYING_SECTIONS for key, value in to_plain(getattr(cfg, name)).items()
    }
    for key in NOT_IN_KEY["trainer"]:  # how fast, not what
        del found[f"trainer.{key}"]
    for part in NESTED_SETTINGS:
        found |= {f"{part}.{key}": value for key, value in (to_plain(found.pop(part)) or {}).items()}
    for depth, method in enumerate(split_chain(cfg.calibration)):
        found |= {f"calibration.{'then.' * depth}{key}": value for key, value in method.items()}
    found.pop("calibration.then", None)  # its settings are there one by one
    return found


def group_over_seeds(rows: list[Row], varying: list[str]) -> list[list[Row]]:
    """Runs that differ in their seeds only, in order of appearance."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (*read_run_names(row.cfg), *list_setting_values(row.cfg, varying))
        found.setdefault(key, []).append(row)
    return list(found.values())


def read_scale_differences(row: Row) -> list[str]:
    """Why a run is not at the paper's scale."""
    return row.record.scale.differs if row.record else find_scale_differences(row.cfg)


def list_setting_values(cfg: Config, varying: list[str]) -> list[str]:
    """A run's values of the varying settings, a dash where a method has no such setting."""
    values = flatten_settings(cfg)
    return [str(values.get(name, "-")) for name in varying]
