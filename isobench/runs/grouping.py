"""Group runs: find the settings that tell them apart, and the runs that differ in their seeds only."""

from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any

from isobench.config.schema import Config, format_method_name, split_chain
from isobench.papers.scale import drop_paper_remarks, find_scale_differences
from isobench.runs.identity import NOT_IN_KEY, to_plain
from isobench.runs.row import Row

NESTED_SETTINGS = ("task.generation", "encoder.scratch")  # settings that are null or have settings of their own
# How runs are trained and reported, whatever the method: runs that differ in one of them are not compared.
PROTOCOL_SETTINGS = ("head.name", "evaluation.every", "optimization.report")
SPEED_ONLY = tuple(f"trainer.{key}" for key in NOT_IN_KEY["trainer"])  # settings that don't change a result
VARYING_SECTIONS = (  # sections whose settings may vary among runs
    "task", "encoder", "calibration", "head", "optimization", "evaluation", "trainer",
)  # fmt: skip


def read_run_names(cfg: Config) -> tuple[str, str, str]:
    """Read the names of task, encoder and method, which a line of a table has."""
    return cfg.task.name, cfg.encoder.name, format_method_name(cfg.calibration)


def find_varying_settings(rows: list[Row]) -> list[str]:
    """Find the settings, dotted, in which runs of the same task, encoder and method differ: tables show them.

    A setting of ``PROTOCOL_SETTINGS`` varies also if it differs between the methods of a task and encoder.
    """
    values_by_names: dict[tuple[str, ...], dict[str, set[str]]] = {}
    by_sections: dict[tuple[int, ...], Row] = {}  # runs that differ in their seeds only mostly share their sections
    for row in rows:
        by_sections.setdefault(tuple(id(getattr(row.cfg, name)) for name in VARYING_SECTIONS), row)
    for row in by_sections.values():
        task, encoder, method = read_run_names(row.cfg)
        settings = {key: value for key, value in flatten_settings(row.cfg).items() if key not in SPEED_ONLY}
        protocol = {key: settings[key] for key in PROTOCOL_SETTINGS}
        for names, own in (((task, encoder, method), settings), ((task, encoder), protocol)):
            values = values_by_names.setdefault(names, {})
            for key, value in own.items():
                values.setdefault(key, set()).add(str(value))
    varying: dict[str, None] = {}
    for values in values_by_names.values():
        varying.update({key: None for key, different in values.items() if len(different) > 1})
    return list(varying)


def flatten_settings(cfg: Config) -> dict[str, Any]:
    """List every setting of a run's ``VARYING_SECTIONS`` by its dotted name."""
    settings = {
        f"{name}.{key}": value for name in VARYING_SECTIONS for key, value in to_plain(getattr(cfg, name)).items()
    }
    for part in NESTED_SETTINGS:
        settings |= {f"{part}.{key}": value for key, value in (to_plain(settings.pop(part)) or {}).items()}
    for depth, method in enumerate(split_chain(cfg.calibration)):
        settings |= {f"calibration.{'then.' * depth}{key}": value for key, value in method.items()}
    settings.pop("calibration.then", None)  # its settings are listed one by one
    return settings


def format_setting_heading(name: str) -> str:
    """Return a setting's heading in tables: its name without its section; ``head.name`` is headed ``head``."""
    section, _, setting = name.partition(".")
    return section if setting == "name" else setting


def group_over_seeds(rows: list[Row], varying: list[str]) -> list[list[Row]]:
    """Group the runs that differ in their seeds only, in order of appearance."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (*read_run_names(row.cfg), *list_setting_values(row.cfg, varying))
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def read_scale_differences(row: Row) -> list[str]:
    """Read how a run differs from the paper's setting: from its record, or from its config if it has not ended.

    An experiment without a paper reproduces none: then only what is true without a paper is said.
    """
    differences = row.record.scale.differs if row.record else find_scale_differences(row.cfg)
    return differences if row.cfg.experiment.paper else drop_paper_remarks(differences)


def list_setting_values(cfg: Config, names: Sequence[str]) -> list[str]:
    """List a run's values of the named settings, with a dash where its method has no such setting."""
    return [str(read_setting(cfg, name)) for name in names]


def read_setting(cfg: Config, name: str) -> Any:
    """Read the setting of this dotted name, as `flatten_settings` names them; a dash if there is none."""
    value: Any = vars(cfg)
    for key in name.split("."):
        value = vars(value) if is_dataclass(value) else value
        if not isinstance(value, dict) or key not in value:
            return "-"
        value = value[key]
    return to_plain(value)
