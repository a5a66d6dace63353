"""Find the class that a ``_target_`` names."""

from typing import Any

from hydra._internal.utils import _locate

from isobench.common.errors import UserError, extract_first_line


def locate_class(target: str, base: type) -> Any:
    """Import what a ``_target_`` names; UserError if it can't be imported, or is a class that is no ``base``."""
    try:
        found = _locate(target)
        if isinstance(found, type) and not issubclass(found, base):
            raise TypeError(f"it must subclass {base.__module__.removesuffix('.base')}.{base.__name__}")
    except (Exception, SystemExit) as error:  # a script may call sys.exit as it is imported
        raise UserError(f"{target}: {extract_first_line(error)}") from error
    return found
