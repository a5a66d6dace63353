"""Find the class that a ``_target_`` names."""

from typing import Any

from hydra._internal.utils import _locate


def locate_class(target: str, base: type) -> Any:
    """Import what a ``_target_`` names; TypeError if it is a class that is no ``base``."""
    found = _locate(target)
    if isinstance(found, type) and not issubclass(found, base):
        raise TypeError(f"{target} must subclass {base.__module__.removesuffix('.base')}.{base.__name__}")
    return found
