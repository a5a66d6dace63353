"""Rebuild dataclasses of settings from plain mappings, quickly: OmegaConf needs 35 ms for the config of one run.

OmegaConf also converts values, such as the text "3" where a number is wanted, and reads references to other settings
(``${seed}``). Nothing of that is done here. Where it might be needed, `NeedsOmegaConf` is raised, and the caller asks
OmegaConf.
"""

import functools
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from omegaconf import MISSING

SCALARS = (str, int, float, bool, NoneType)


class NeedsOmegaConf(Exception):
    """A value is not just what its type hint says, so that OmegaConf has to convert or refuse it."""


def rebuild_value(value: Any, hint: Any) -> Any:
    """Copy a value, with a dataclass in place of each mapping whose hint is one; absent settings get their defaults.

    Args:
        value: what a YAML or JSON file holds.
        hint: the type hint, without bounds: a dataclass, list, dict, bool, int, float, str, Any, or one of these or
            None.

    Raises:
        NeedsOmegaConf: a value is of another type, refers to another setting, or is missing, or a key is unknown.
    """
    if hint is Any:
        return copy_plain(value)
    if get_origin(hint) in (Union, UnionType):
        if value is None:
            return None
        (hint,) = (option for option in get_args(hint) if option is not NoneType)
        return rebuild_value(value, hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return rebuild_dataclass(value, hint)
    if get_origin(hint) is list and type(value) is list:
        return [rebuild_value(entry, get_args(hint)[0]) for entry in value]
    if get_origin(hint) is dict and type(value) is dict and all(type(key) is str for key in value):
        return {key: rebuild_value(entry, get_args(hint)[1]) for key, entry in value.items()}
    if type(value) is not hint:
        raise NeedsOmegaConf
    return copy_plain(value)


def rebuild_dataclass(values: Any, kind: Any) -> Any:
    """Make a dataclass from a mapping of its settings; see `rebuild_value`."""
    hints = read_plain_hints(kind)
    if type(values) is not dict or not values.keys() <= hints.keys():
        raise NeedsOmegaConf
    absent: dict[str, Any] = {name: {} for name, hint in hints.items() if name not in values and is_dataclass(hint)}
    rebuilt = kind(**{name: rebuild_value(value, hints[name]) for name, value in (values | absent).items()})
    if any(isinstance(value, str) and value == MISSING for value in vars(rebuilt).values()):
        raise NeedsOmegaConf
    return rebuilt


def copy_plain(value: Any) -> Any:
    """Copy what a YAML or JSON file holds; raise NeedsOmegaConf for other values, references and missing values."""
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: copy_plain(entry) for key, entry in value.items()}
    if type(value) is list:
        return [copy_plain(entry) for entry in value]
    if type(value) not in SCALARS or (type(value) is str and ("${" in value or value == MISSING)):
        raise NeedsOmegaConf
    return value


@functools.cache
def read_plain_hints(kind: Any) -> dict[str, Any]:
    """Read the type hints of a dataclass's fields, without their bounds."""
    return get_type_hints(kind)
