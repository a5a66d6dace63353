"""Multiply a setting of some methods, such as IsoBN's ``calibration.beta``, with the methods that have it."""

from collections.abc import Iterable, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException

from isobench.config.schema import format_method_name
from isobench.runs.row import Row
from isobench.sweep.compose import Composer

PREFIX = "calibration."


def fit_to_methods(composer: Composer, runs: Sequence[Sequence[str]]) -> list[tuple[list[str], list[str]]]:
    """Leave out of each run's overrides the settings that its method does not have and another run's method has.

    A setting that no run's method has stays, so that composing a run raises the error that names the nearest one.

    Args:
        composer: composes the sweep's configs.
        runs: the overrides of each run.

    Returns:
        The overrides and the names of the settings that were left out, for each run; equal overrides once.

    Raises:
        hydra.errors.HydraException: there is no such method.
    """
    absent = [composer.find_absent_method_settings(run) for run in runs]
    held = {
        read_name(text)
        for run, lacking in zip(runs, absent, strict=True)
        for text in run
        if text.startswith(PREFIX) and text not in lacking
    }
    fitted: dict[tuple[str, ...], list[str]] = {}
    for run, lacking in zip(runs, absent, strict=True):
        left_out = [text for text in lacking if read_name(text) in held]
        fitted.setdefault(tuple(text for text in run if text not in left_out), list(map(read_name, left_out)))
    return [(list(run), names) for run, names in fitted.items()]


def describe_left_out(runs: Iterable[tuple[Row, Sequence[str], Sequence[str]]]) -> list[str]:
    """Say in a sentence for each setting which methods of a sweep do not have it.

    Args:
        runs: the row of each run, its overrides, and the settings that were left out of them.
    """
    having: dict[str, dict[str, None]] = {}
    lacking: dict[str, dict[str, None]] = {}
    for row, overrides, left_out in runs:
        method = format_method_name(row.cfg.calibration)
        for name in left_out:
            lacking.setdefault(name, {})[method] = None
        for text in overrides:
            having.setdefault(read_name(text), {})[method] = None
    return [
        f"{name} is set for {', '.join(having[name])}; methods without this setting: {', '.join(methods)}"
        for name, methods in lacking.items()
    ]


def postpone_method_settings(arguments: Sequence[str]) -> list[str]:
    """Write ``calibration.beta=0.5`` as ``calibration.beta=choice(0.5)``: then Hydra leaves it to the sweep's runs.

    Hydra sets a single value in the sweep's own config too. It would refuse the value there, because the sweep's own
    config has the default method, whatever methods the runs have.
    """
    parser = OverridesParser.create()
    postponed = []
    for text in arguments:
        try:
            override = parser.parse_override(text) if text.startswith(PREFIX) else None
        except HydraException:  # Hydra raises it again, where its message is explained
            override = None
        value = text.partition("=")[2]
        is_single = override is not None and override.type == OverrideType.CHANGE and not override.is_sweep_override()
        postponed.append(f"{read_name(text)}=choice({value})" if is_single and value else text)
    return postponed


def read_name(text: str) -> str:
    """Read the setting's name of an override ``name=value``."""
    return text.partition("=")[0]
