"""Tell whether training a config runs only isobench's own code: a config can name any class, and code to download."""

import importlib
import re
from typing import Any

from isobench.config.schema import Config, split_chain

METHOD_CLASS = re.compile(r"isobench\.calibration(\.[a-z_]\w*)?\.[A-Z]\w*")
MONITOR_CLASS = re.compile(r"(isobench\.analyses\.[a-z_]\w*|isobench\.training\.monitor)\.[A-Z]\w*")


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


def is_own_class(target: str) -> bool:
    """Return True if a dotted path names a class that is defined in the package of the path."""
    module, _, name = target.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return False
    package = ".".join(target.split(".")[:2])
    return isinstance(value, type) and f"{value.__module__}.".startswith(f"{package}.")


def has_instruction(value: Any) -> bool:
    """Return True if a mapping in a value has a key like ``_target_`` or ``_partial_``."""
    if isinstance(value, dict):
        return any(str(key).startswith("_") or has_instruction(item) for key, item in value.items())
    return isinstance(value, list) and any(map(has_instruction, value))
