"""Carry out a stored config with isobench's own classes: none that a stored config names is ever imported."""

from dataclasses import replace
from functools import cache
from typing import Any

import yaml

from isobench.config.schema import Config, split_chain
from isobench.papers.folders import find_config_folders


class NotAvailable(Exception):
    """Data, weights or code are not at hand, so that something can't be checked here."""


def find_other_class(cfg: Config) -> str | None:
    """Return which method or monitor has a name of isobench's own and another class, in words; None if none has.

    A run's key has a method's name and not its class. So another class under this name would pass for it.
    Only the class's own name is compared, because a class may have moved since.
    """
    named = [("calibration", str(method.get("name")), method) for method in split_chain(cfg.calibration)]
    for kind, name, settings in [*named, *(("monitor", name, own) for name, own in cfg.monitors.items())]:
        own, target = read_own_classes().get((kind, name)), str(settings.get("_target_"))
        if own is not None and target.rpartition(".")[2] != own.rpartition(".")[2]:
            return f"the {kind} {name} is the class {target}, and isobench's is {own}"
    return None


def use_own_classes(cfg: Config) -> Config:
    """Return a config whose methods and monitors are the classes that isobench has under their names.

    Raises:
        NotAvailable: isobench has no class of such a name, or the config would run other code.
    """
    if cfg.encoder.trust_remote_code:
        raise NotAvailable("its encoder brings code of its own, which is run with --trust only")
    monitors = {name: _use_own_class("monitor", name, settings) for name, settings in cfg.monitors.items()}
    return replace(cfg, calibration=_use_own_chain(cfg.calibration), monitors=monitors)


def _use_own_chain(settings: dict[str, Any]) -> dict[str, Any]:
    first = {name: value for name, value in settings.items() if name != "then"}
    own = _use_own_class("calibration", str(settings.get("name")), first)
    return own | ({"then": _use_own_chain(settings["then"])} if settings.get("then") else {})


def _use_own_class(kind: str, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in settings.items() if key != "_target_"}
    if (kind, name) not in read_own_classes():
        target = settings.get("_target_")
        raise NotAvailable(f"isobench has no {kind} {name}: the class {target} is run with --trust only")
    if _has_instruction(own):
        raise NotAvailable(f"its {kind} {name} has settings that Hydra would carry out, with --trust only")
    return {"_target_": read_own_classes()[kind, name], **own}


@cache
def read_own_classes() -> dict[tuple[str, str], str]:
    """Return the classes of isobench's methods and of its experiments' monitors: (kind, name) -> dotted path."""
    folders = find_config_folders()
    methods, experiments = (
        [yaml.safe_load(file.read_text()) or {} for folder in folders for file in folder.glob(f"{group}/*.yaml")]
        for group in ("calibration", "experiment")
    )
    found = {("calibration", own["name"]): own["_target_"] for own in methods if "_target_" in own}
    for experiment in experiments:
        for name, monitor in (experiment.get("monitors") or {}).items():
            found["monitor", name] = monitor["_target_"]
    return found


def _has_instruction(value: Any) -> bool:
    """Return True if a mapping in a value has a key like ``_target_`` or ``_partial_``."""
    if isinstance(value, dict):
        return any(str(key).startswith("_") or _has_instruction(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_has_instruction, value))
