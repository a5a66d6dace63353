"""Expand an experiment's grid, a list of sub-grids, together with the command line, into the runs of a sweep.

A setting of some methods, such as IsoBN's ``calibration.beta``, is multiplied with the methods that have it.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException

from isobench.common.errors import refuse
from isobench.config.command_line import Override, expand_home_folders
from isobench.sweep.compose import Composer


def expand_grid(
    grid: Sequence[Mapping[str, Sequence[Any]]], command_line: Mapping[str, Sequence[Override]]
) -> list[list[Override]]:
    """List every run by its overrides: for each sub-grid, the product of its axes and the command line's.

    A setting on the command line replaces the grid's values of that setting, and every run has one of its values:

    - A value that some sub-grids have selects these sub-grids. Each sub-grid keeps only its own values.
    - A value that no sub-grid has, such as a new ``calibration``, applies to the sub-grids with this axis and without
      settings of its group (``calibration.beta``), because such settings may not fit the new value. If all sub-grids
      with this axis have such settings, the value applies to all of them.

    Args:
        grid: the sub-grids, each a mapping of a setting or group to its values; [] is one sub-grid without axes.
        command_line: each setting (as typed, with any ``+``) with its overrides, one for each value.
    """
    runs = []
    empty = [key for sub_grid in grid for key, values in sub_grid.items() if not values]
    refuse((empty, f"experiment.grid: {', '.join(empty)} has no values: write some, such as [A, B]"))
    for sub_grid in grid or [{}]:
        axes = {key: [Override(key, _format_value(value)) for value in values] for key, values in sub_grid.items()}
        kept_values = [values for key, values in axes.items() if key not in command_line]
        selected = [_select_values(key, overrides, axes, grid) for key, overrides in command_line.items()]
        runs += [list(run) for run in itertools.product(*kept_values, *selected)]
    _check_combinations(runs, grid, command_line)
    return runs


def _check_combinations(
    runs: Sequence[Sequence[Override]],
    grid: Sequence[Mapping[str, Sequence[Any]]],
    command_line: Mapping[str, Sequence[Override]],
) -> None:
    """Raise UserError for the first combination of the command line's values that is in no run."""
    choosing = [overrides for key, overrides in command_line.items() if any(key in axes for axes in grid)]
    typed = {override for overrides in choosing for override in overrides}
    planned = {frozenset(typed.intersection(run)) for run in runs}
    for combination in itertools.product(*choosing):
        text = " ".join(map(str, combination)) or "of the settings given"
        refuse((frozenset(combination) not in planned, f"no sub-grid has the combination {text}: leave it out"))


def rewrite_overrides(overrides: Sequence[Override]) -> list[Override]:
    """Rewrite a command line's settings that Hydra would not accept: chains, new monitors, and paths like ``~/x``.

    ``monitors.NAME={...}`` adds a monitor or changes the settings of one, so Hydra needs ``++`` before it.
    """
    rewritten = []
    for override in overrides:
        refuse((override.key.startswith("~"), f"{override}: a setting can't be removed: give it a value"))
        is_monitor = override.key.startswith("monitors.") and len(override.path) == 2
        if is_monitor and (override.value or "").lstrip().startswith("{"):
            override = override._replace(key=f"++{override.key}")
        rewritten.append(expand_home_folders(override))
    return expand_chains(rewritten)


def expand_chains(overrides: Sequence[Override]) -> list[Override]:
    """Replace ``calibration=[a,b,c]``, a chain of methods, by the Hydra overrides for it; keep other overrides.

    a is chosen, b is nested in a as ``calibration.then``, c in b: ``calibration.then.then.x`` is a setting of c.
    """
    expanded = []
    for override in overrides:
        chain = re.fullmatch(r"\s*\[([^\]]*)\]+\s*", override.value or "")  # not [a],[b], which is a sweep
        if not chain or override.path != ["calibration"]:
            expanded.append(override)
            continue
        first, *rest = names = [name.strip() for name in chain[1].split(",")]
        are_names = all(re.fullmatch(r"[\w-]+", name) for name in names)
        refuse((not are_names, f"{override}: a chain is a list of methods' names, such as calibration=[a,b]"))
        expanded.append(Override("calibration", first))
        for depth, name in enumerate(rest, 1):
            expanded.append(Override(f"+calibration@calibration{'.then' * depth}", name))
    return expanded


def postpone_method_settings(overrides: Sequence[Override]) -> list[Override]:
    """Write ``calibration.beta=0.5`` as ``calibration.beta=choice(0.5)``: then Hydra leaves it to the sweep's runs.

    Hydra would refuse a single value, because the sweep's own config has the default method, whatever the runs have.
    """
    parser = OverridesParser.create()

    def is_single(override: Override) -> bool:
        if not override.is_of_method or override.key.startswith("+") or not override.value:
            return False
        try:
            parsed = parser.parse_override(str(override))
        except HydraException:  # Hydra raises it again, where its message is explained
            return False
        return parsed.type == OverrideType.CHANGE and not parsed.is_sweep_override()

    return [one._replace(value=f"choice({one.value})") if is_single(one) else one for one in overrides]


def fit_to_methods(composer: Composer, runs: Sequence[Sequence[Override]]) -> list[tuple[list[Override], list[str]]]:
    """Leave out of each run's overrides the settings that its method does not have and another run's method has.

    A setting that no run's method has stays, so that composing a run raises the error that names the nearest one.
    Return the overrides and the names of the settings left out, for each run; equal overrides once.
    """
    absent = [composer.find_absent_method_settings(run) for run in runs]
    held = {
        override.key
        for run, lacking in zip(runs, absent, strict=True)
        for override in run
        if override.is_of_method and override not in lacking
    }
    fitted: dict[tuple[Override, ...], list[str]] = {}
    for run, lacking in zip(runs, absent, strict=True):
        left_out = [override for override in lacking if override.key in held]
        kept = tuple(override for override in run if override not in left_out)
        fitted.setdefault(kept, [override.key for override in left_out])
    return [(list(run), names) for run, names in fitted.items()]


def _select_values(
    key: str,
    overrides: Sequence[Override],
    axes: Mapping[str, Sequence[Override]],
    grid: Sequence[Mapping[str, Sequence[Any]]],
) -> list[Override]:
    """Select the command line's overrides of one setting that apply to one sub-grid; [] means that it has no runs.

    ``axes`` are the sub-grid's own axes as overrides, ``grid`` all sub-grids.
    """
    if key not in axes:
        return list(overrides)
    holders = [sub_grid for sub_grid in grid if key in sub_grid]
    known = {Override(key, _format_value(value)) for sub_grid in holders for value in sub_grid[key]}
    # A new method may not fit a sub-grid's calibration.beta, so it goes to sub-grids without one, if there are any.
    takes_others = not _has_settings_of(axes, key) or all(_has_settings_of(sub_grid, key) for sub_grid in holders)
    return [value for value in overrides if value in axes[key] or (value not in known and takes_others)]


def _has_settings_of(axes: Mapping[str, Any], key: str) -> bool:
    return any(axis.rpartition(".")[0] == key for axis in axes)


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_format_value, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
