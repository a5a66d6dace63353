"""Grids that are not one product: a list of sub-grids, multiplied with what the command line adds."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any


def expand(grid: Sequence[Mapping[str, Sequence[Any]]], command_line: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Every run as a list of Hydra overrides.

    Args:
        grid: sub-grids, each a mapping of setting or group to its values; each is a product of its own.
        command_line: setting (as typed, with any ``+``) to its overrides ``key=value``. A setting given here
            replaces the grid's values for it.
    """
    runs = []
    for sub_grid in grid or [{}]:
        axes = [
            [f"{key}={_text(value)}" for value in values]
            for key, values in sub_grid.items()
            if key not in command_line
        ]
        runs += [list(run) for run in itertools.product(*axes, *command_line.values())]
    return runs


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
