"""Check an analysis's settings against its function's parameters, before anything is loaded."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from isobench.common.errors import UserError
from isobench.config.bounds import check_value


def check_settings(function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise UserError unless a function can be called with the settings.

    Args:
        function: takes the runs' subjects, then the settings; their annotations carry types and bounds.
        settings: what the config's ``analysis`` has, without ``_target_``.

    Raises:
        UserError: a setting without a parameter, a parameter without a setting, a value out of its bounds.
    """
    parameters = dict(list(inspect.signature(function).parameters.items())[1:])
    for name in settings:
        if name not in parameters:
            target = f"{function.__module__}.{function.__qualname__}"
            raise UserError(f"analysis.{name} is no setting of {target}; it has: {', '.join(parameters) or 'none'}")
    for name, parameter in parameters.items():
        if name in settings:
            check_value(f"analysis.{name}", settings[name], parameter.annotation)
        elif parameter.default is parameter.empty:
            raise UserError(f"analysis.{name} must be set: add +analysis.{name}=...")
