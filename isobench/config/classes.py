"""Find the class that a ``_target_`` names."""

from typing import Any

from hydra._internal.utils import _locate

from isobench.common.errors import refuse


def locate_class(target: str, base: type) -> Any:
    """Import what a ``_target_`` names; TypeError if it is a class that is no ``base``."""
    try:
        found = _locate(target)
    except ImportError as error:
        missing, (module, _, name) = getattr(error.__cause__, "name", None), target.rpartition(".")
        remedy = "start isobench in its folder, or put that into PYTHONPATH"
        refuse(
            (missing == target, f"the module {module} has no {name}"),
            (f"{module}.".startswith(f"{missing}."), f"there is no module {missing}: {remedy}"),
            error=ImportError,
        )
        raise
    if isinstance(found, type) and not issubclass(found, base):
        raise TypeError(f"{target} must subclass {base.__module__.removesuffix('.base')}.{base.__name__}")
    return found
