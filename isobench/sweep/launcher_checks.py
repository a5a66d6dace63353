"""Checks of a launcher's settings, which Hydra hands over as they were typed."""

from typing import Any

from isobench.common.errors import UserError


def require_positive(name: str, value: Any, whole: bool = True) -> None:
    """Raise UserError unless the setting is a number above 0, whole unless said otherwise."""
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not value > 0:
        kind = "whole number of at least 1" if whole else "number above 0"
        raise UserError(f"hydra.launcher.{name}={value} must be a {kind}")


def require_boolean(name: str, value: Any) -> None:
    """Raise UserError unless the setting is true or false."""
    if not isinstance(value, bool):
        raise UserError(f"hydra.launcher.{name}={value} must be true or false")


def require_strings(name: str, value: Any) -> list[str]:
    """A launcher's setting that is a list of texts; a text alone would become a list of letters."""
    if isinstance(value, str) or not all(isinstance(line, str) for line in value):
        raise UserError(f"hydra.launcher.{name} must be a list: 'hydra.launcher.{name}=[\"...\"]'")
    return list(value)
