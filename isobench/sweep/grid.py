"""Grids that are not one product: a list of sub-grids, multiplied with what the command line adds."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from isobench.common.errors import UserError


def expand_grid(
    grid: Sequence[Mapping[str, Sequence[Any]]], command_line: Mapping[str, Sequence[str]]
) -> list[list[str]]:
    """Every run as a list of Hydra overrides.

    A setting on the command line replaces the grid's values for it; where it names values that some sub-grids
    have, it chooses among sub-grids, and each keeps its own. A method's setting (``calibration.x``) that is an
    axis of some sub-grids goes to these only, and a method that is in none goes to those without such an axis.

    Args:
        grid: sub-grids, each a mapping of setting or group to its values; each is a product of its own.
        command_line: setting (as typed, with any ``+``) to its overrides ``key=value``.
    """
    runs = []
    for sub_grid in grid or [{}]:
        axes = {key: [f"{key}={_format_value(value)}" for value in values] for key, values in sub_grid.items()}
        given = {key: _select_values(key, wanted, axes, grid) for key, wanted in command_line.items()}
        own = [values for key, values in axes.items() if key not in command_line]
        chosen = [values for values in given.values() if values is not None]
        runs += [list(run) for run in itertools.product(*own, *chosen)]
    return runs


def expand_chains(overrides: Sequence[str]) -> list[str]:
    """``calibration=[a,b,c]``, methods in order, as the Hydra overrides it stands for; the others as they are.

    a is chosen, b nested in it as ``calibration.then``, c in that: ``calibration.then.then.x`` is a setting of c.

    Raises:
        UserError: a list with anything else in it than names.
    """
    found = []
    for text in overrides:
        chain = re.fullmatch(r"\+*calibration\s*=\s*\[([^\]]*)\]+\s*", text)  # not [a],[b]: that is a sweep
        if not chain:
            found.append(text)
            continue
        first, *rest = names = [name.strip() for name in chain[1].split(",")]
        if not all(re.fullmatch(r"[\w-]+", name) for name in names):
            raise UserError(f"{text}: a chain is a list of methods' names, such as calibration=[isobn_paper,cosine]")
        found.append(f"calibration={first}")
        found += [f"+calibration@calibration{'.then' * depth}={name}" for depth, name in enumerate(rest, 1)]
    return found


def _select_values(key: str, wanted: Sequence[str], axes: Mapping[str, Sequence[str]], grid: Any) -> list[str] | None:
    """What a sub-grid takes of a setting on the command line: some values, none (no run), None (no such axis)."""
    holders = [sub_grid for sub_grid in grid if key in sub_grid]
    if key not in axes:
        return None if holders and key.startswith("calibration.") else list(wanted)
    known = {f"{key}={_format_value(value)}" for sub_grid in holders for value in sub_grid[key]}
    takes_others = not _has_settings_of(axes, key) or all(_has_settings_of(sub_grid, key) for sub_grid in holders)
    return [value for value in wanted if value in axes[key] or (value not in known and takes_others)]


def _has_settings_of(axes: Mapping[str, Any], key: str) -> bool:
    """True if a sub-grid has settings for what it chooses in this group: they would not fit another choice."""
    return any(axis.startswith(f"{key}.") for axis in axes)


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_format_value, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
