"""Group runs: find the settings that tell them apart, and the runs that differ in their seeds only.

Two more settings, ``task.data`` and ``encoder.weights``, hold where data and weights come from with the start of
their fingerprints. So runs on other data or weights are never taken for seeds of one configuration.
"""

from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from isobench.common.files import sha256_json
from isobench.config.schema import OPTIONAL_PARTS, Config, Seeds, format_method_name, split_chain
from isobench.data.sources import describe_source
from isobench.data.weights import describe_weights, format_encoder_name
from isobench.runs.folder import report_folder
from isobench.runs.identity import NOT_IN_KEY, compute_key, to_plain
from isobench.runs.run import Run
from isobench.tasks.kind import list_scored

# How runs are trained and reported, whatever the method: runs that differ in one of them are not compared.
PROTOCOL_SETTINGS = ("head.name", "evaluation.every", "optimization.report")
SOURCE_SETTINGS = ("task.data", "encoder.weights")  # where both come from; runs that differ in them are not compared
# Settings that don't change a result. Those of sources do so by the data and the weights, which are compared instead.
NOT_COMPARED = {f"{section}.{key}" for section, keys in NOT_IN_KEY.items() for key in keys}
# Tables don't show these as settings that vary, but runs that differ in them need different names.
MORE_SETTINGS = ("seeds.init", "seeds.order", "seeds.dropout")
VARYING_SECTIONS = (  # sections whose settings may vary among runs
    "task", "encoder", "calibration", "head", "optimization", "evaluation", "trainer", "monitors",
)  # fmt: skip


def read_run_names(cfg: Config) -> tuple[str, str, str]:
    return cfg.task.name, format_encoder_name(cfg.encoder), format_method_name(cfg.calibration)


def list_never_mixed() -> list[str]:
    """List the settings in which runs of one task and encoder must agree, whatever their methods."""
    return [*PROTOCOL_SETTINGS, *list_scored(), *SOURCE_SETTINGS]


def find_varying_settings(runs: list[Run]) -> list[str]:
    """Find the settings, dotted, in which runs of the same task, encoder and method differ: tables show them.

    A setting that one run has and another lacks counts as null in the other. One of `list_never_mixed` varies also
    if it differs between the methods of a task and encoder.
    """
    never_mixed = list_never_mixed()
    by_sections: dict[tuple[int, ...], Run] = {}  # runs that differ in their seeds only mostly share their sections
    for run in runs:
        shared_objects = (*(getattr(run.cfg, name) for name in VARYING_SECTIONS), *run.identity.fingerprints)
        by_sections.setdefault(tuple(map(id, shared_objects)), run)
    settings_by_names: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for run in by_sections.values():
        task, encoder, method = read_run_names(run.cfg)
        sources = dict(zip(SOURCE_SETTINGS, run.identity.fingerprints, strict=True))  # equal in copies elsewhere
        settings = {name: value for name, value in flatten_settings(run.cfg).items() if name not in NOT_COMPARED}
        settings |= sources
        protocol = {key: settings.get(key) for key in never_mixed}
        settings_by_names.setdefault((task, encoder, method), []).append(settings)
        settings_by_names.setdefault((task, encoder), []).append(protocol)
    varying: dict[str, None] = {}
    for settings_of_runs in settings_by_names.values():
        for name in dict.fromkeys(chain.from_iterable(settings_of_runs)):
            if len({str(settings.get(name)) for settings in settings_of_runs}) > 1:
                varying[name] = None
    return list(varying)


def flatten_settings(cfg: Config) -> dict[str, Any]:
    """List every setting of a run's ``VARYING_SECTIONS`` by its dotted name."""
    sections = {name: to_plain(getattr(cfg, name)) for name in VARYING_SECTIONS}
    settings = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
    for part in OPTIONAL_PARTS:
        settings |= {f"{part}.{key}": value for key, value in (settings.pop(part) or {}).items()}
    for depth, method in enumerate(split_chain(cfg.calibration)):
        settings |= {f"calibration.{'then.' * depth}{key}": value for key, value in method.items()}
    settings.pop("calibration.then", None)  # its settings are listed one by one
    return settings


def find_report_folder(runs: Sequence[Run]) -> Path:
    """Return the folder with a sweep's report: its experiment's, else one named by all that its runs have but seeds.

    So more seeds keep the folder, and a sweep with other settings, data or weights does not write over it.
    """
    first = runs[0].cfg
    if first.experiment.name:
        return report_folder(first.output_dir, first.experiment.name)
    keys = {compute_key(replace(run.cfg, seed=0, seeds=Seeds()), *run.identity.fingerprints) for run in runs}
    tasks, encoders = {run.cfg.task.name for run in runs}, {run.cfg.encoder.name for run in runs}
    names = [next(iter(own)) for own in (tasks, encoders) if len(own) == 1]
    return report_folder(first.output_dir, "-".join([*(names or ["runs"]), sha256_json(sorted(keys))[:8]]))


def shorten_setting_names(names: Sequence[str]) -> dict[str, str]:
    """Shorten dotted names of settings to their last parts, as many as it takes to tell them apart.

    ``optimization.lr`` becomes ``lr``, and ``head.name`` becomes ``head``. ``head.dropout`` and ``trainer.dropout``
    stay as they are if both are among the names.
    """
    short_names = {}
    for name in names:
        parts = name.removesuffix(".name").split(".")
        tails = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        others = [other.removesuffix(".name") for other in names if other != name]
        unique = (tail for tail in tails if not any(f".{other}".endswith(f".{tail}") for other in others))
        short_names[name] = next(unique, name)
    return short_names


def group_over_seeds(runs: list[Run], varying: list[str]) -> list[list[Run]]:
    """Group the runs that differ in their seeds only, in order of appearance."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run, values in zip(runs, read_settings(runs, varying), strict=True):
        groups.setdefault((*read_run_names(run.cfg), *map(str, values.values())), []).append(run)
    return list(groups.values())


def read_settings(runs: Sequence[Run], names: Iterable[str]) -> list[dict[str, Any]]:
    """Return each run's values of the named settings, a dash for one that it lacks."""
    names = list(names)
    return [
        {name: _read_source(run, name) if name in SOURCE_SETTINGS else read_setting(run.cfg, name) for name in names}
        for run in runs
    ]


def _read_source(run: Run, name: str) -> str:
    position = SOURCE_SETTINGS.index(name)
    fingerprint = run.identity.fingerprints[position]
    source = (describe_source(run.cfg.task, run.cfg.data), describe_weights(run.cfg.encoder))[position]
    return f"{source} ({sha256_json(fingerprint)[:8]})" if fingerprint else "-"


def read_setting(cfg: Config, name: str) -> Any:
    """Read the setting of this dotted name, as `flatten_settings` names them; a dash if there is none."""
    value: Any = vars(cfg)
    for key in name.split("."):
        value = vars(value) if is_dataclass(value) else value
        if not isinstance(value, dict) or key not in value:
            return "-"
        value = value[key]
    return to_plain(value)


def label_runs(runs: Sequence[Run], keep_labels: bool = False) -> None:
    """Write into each run's ``tracking.label`` what tells it from the others, beside task, encoder, method and seed.

    With ``keep_labels`` a run keeps the label that it has (the user's), or if nothing tells it from the others.
    """
    seeds = read_settings(runs, MORE_SETTINGS)
    names = find_varying_settings(list(runs))
    names += [name for name in MORE_SETTINGS if len({str(values[name]) for values in seeds}) > 1]
    short_names = shorten_setting_names(names)
    for run, values in zip(runs, read_settings(runs, names), strict=True):
        held = {short_names[name]: value for name, value in values.items() if value != "-"}
        told = {name: value for name, value in held.items() if value is not None} or held  # no nulls beside others
        before = run.cfg.tracking.label
        label = " ".join(f"{name}={format_value(value)}" for name, value in told.items()) or None
        if label and "${" in label:  # a stored config refers to nothing
            label = None
        if label != before and not (keep_labels and (before or not label)):
            run.cfg = replace(run.cfg, tracking=replace(run.cfg.tracking, label=label))


def format_value(value: Any) -> str:
    """Write a setting's value briefly, as it is typed on the command line."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(format_value, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
