"""Find the class that a ``_target_`` names."""

from typing import Any

from hydra._internal.utils import _locate


def locate_class(target: str, base: type) -> Any:
    """Import what a ``_target_`` names; TypeError if it is a class that is no ``base``."""
    try:
        found = _locate(target)
    except SystemExit as error:  # a script may call sys.exit as it is imported
        raise ImportError(f"{target} ends Python as it is imported") from error
    if isinstance(found, type) and not issubclass(found, base):
        raise TypeError(f"{target} must subclass {base.__module__.removesuffix('.base')}.{base.__name__}")
    return found
