"""Tell whether training a config runs only isobench's own code: a config can name any class, and code to download."""

import importlib
import re
from dataclasses import replace
from functools import cache
from typing import Any

import yaml

from isobench.config.schema import Config, split_chain
from isobench.papers.folders import find_config_folders

PAPER_MODULE = r"isobench_papers\.[a-z_]\w*\.[a-z_]\w*"
METHOD_CLASS = re.compile(rf"(isobench\.calibration(\.[a-z_]\w*)?|{PAPER_MODULE})\.[A-Z]\w*")
# Monitors of papers were in isobench.analyses when the first shipped runs were made.
MONITOR_CLASS = re.compile(rf"({PAPER_MODULE}|isobench\.analyses\.[a-z_]\w*|isobench\.training\.monitor)\.[A-Z]\w*")


def name_monitors_anew(cfg: Config) -> Config:
    """Give monitors the present names of their classes: a class may have moved since a run's config was written."""
    own = read_monitor_classes()
    monitors = {
        name: monitor | {"_target_": own[name]}
        if name in own and isinstance(monitor, dict) and is_same_class(str(monitor.get("_target_")), own[name])
        else monitor
        for name, monitor in cfg.monitors.items()
    }
    return replace(cfg, monitors=monitors)


def find_foreign_code(cfg: Config) -> str | None:
    """Return what a config would run beside isobench's own classes, in words; None if it runs nothing else."""
    if cfg.encoder.trust_remote_code:
        return "its encoder brings code of its own"
    for method in split_chain(cfg.calibration):
        if problem := find_foreign_class(method, METHOD_CLASS):
            return f"its calibration {problem}"
    for monitor in cfg.monitors.values():
        if problem := find_foreign_class(monitor, MONITOR_CLASS):
            return f"a monitor {problem}"
    return None


def find_foreign_class(settings: Any, allowed: re.Pattern[str]) -> str | None:
    """Return what is wrong unless ``_target_`` is a class that isobench defines under this very name.

    A dotted path can lead from a module of isobench to everything that this module imports, so the class must be
    defined in isobench. Settings must not hold instructions of Hydra, such as another ``_target_``.
    """
    target = str(settings.get("_target_")) if isinstance(settings, dict) else "None"
    if not allowed.fullmatch(target) or not is_own_class(target):
        return f"is the class {target}"
    own = {key: value for key, value in settings.items() if key != "_target_"}
    return "has settings that Hydra would carry out" if has_instruction(own) else None


def find_renamed_class(cfg: Config) -> str | None:
    """Return which method or monitor has a name of isobench's own and another class, in words; None if none has.

    A run's key has the name of a method and not its class. So a class under another method's name would pass for it.
    """
    named = [(str(method.get("name")), method, "calibration") for method in split_chain(cfg.calibration)]
    named += [(name, monitor, "monitor") for name, monitor in cfg.monitors.items()]
    for name, settings, kind in named:
        own = (read_method_classes() if kind == "calibration" else read_monitor_classes()).get(name)
        target = settings.get("_target_") if isinstance(settings, dict) else None
        if own is not None and not is_same_class(str(target), own):
            return f"the {kind} {name} is the class {target}, and isobench's is {own}"
    return None


@cache
def read_method_classes() -> dict[str, str]:
    """Return the class of every method that isobench brings, by the method's name."""
    files = (file for folder in find_config_folders() for file in folder.glob("calibration/*.yaml"))
    methods = [yaml.safe_load(file.read_text()) for file in sorted(files)]
    return {method["name"]: method["_target_"] for method in methods if "_target_" in method}


@cache
def read_monitor_classes() -> dict[str, str]:
    """Return the class of every monitor that isobench's experiments bring, by the monitor's name."""
    files = (file for folder in find_config_folders() for file in folder.glob("experiment/*.yaml"))
    configs = [yaml.safe_load(file.read_text()) or {} for file in sorted(files)]
    return {
        name: monitor["_target_"]
        for config in configs
        for name, monitor in (config.get("monitors") or {}).items()
        if "_target_" in monitor
    }


def is_same_class(target: str, own: str) -> bool:
    """Return True if a dotted path leads to a class of isobench, or to its former place under the same name."""
    if target == own:
        return True
    if not METHOD_CLASS.fullmatch(target) and not MONITOR_CLASS.fullmatch(target):
        return False
    if not is_own_class(target):  # a class may have moved since
        return target.rpartition(".")[2] == own.rpartition(".")[2]
    return find_class(target) is find_class(own)


def find_class(target: str) -> Any:
    """Return what a dotted path of isobench names; None if its module has no such name.

    Raises:
        ImportError: there is no such module.
    """
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name, None)


def is_own_class(target: str) -> bool:
    """Return True if a dotted path names a class that is defined in the package of the path."""
    try:
        value = find_class(target)
    except ImportError:
        return False
    package = ".".join(target.split(".")[:2])
    return isinstance(value, type) and f"{value.__module__}.".startswith(f"{package}.")


def has_instruction(value: Any) -> bool:
    """Return True if a mapping in a value has a key like ``_target_`` or ``_partial_``."""
    if isinstance(value, dict):
        return any(str(key).startswith("_") or has_instruction(item) for key, item in value.items())
    return isinstance(value, list) and any(map(has_instruction, value))
