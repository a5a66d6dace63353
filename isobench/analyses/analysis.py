"""Load an analysis: a module with ``compute(subjects, **settings)``, which returns rows, and ``show(rows)``."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isobench.common.errors import UserError, extract_first_line
from isobench.config.bounds import check_value

if TYPE_CHECKING:  # importing them takes seconds
    from isobench.analyses.shown import Rows, Shown
    from isobench.analyses.subject import Subject

RUNNER_SETTINGS = ("_target_", "trains", "unfinished")  # of an analysis; compute takes the other ones
OLD_ENDING = ".analyse"  # of the targets before an analysis was a module
GUIDE = "an analysis is a module with compute and show (docs/how-to/analyses.md)"


class Analysis(NamedTuple):
    """An analysis with its settings.

    Attributes:
        module: has ``compute``, and may have ``show`` and ``describe_differences``.
        settings: those of ``compute``.
    """

    module: Any
    settings: dict[str, Any]

    def compute(self, subjects: Sequence["Subject"]) -> "Rows":
        """Compute the rows of subjects.

        Raises:
            UserError: what ``compute`` returned is no rows by name, or ``compute`` raises it.
        """
        rows = self.module.compute(list(subjects), **self.settings)
        _check_rows(rows)
        return {name: list(map(dict, own)) for name, own in rows.items()}

    def show(self, rows: "Rows") -> "Shown":
        """Show rows; ``show`` takes the settings that it has parameters for."""
        from isobench.analyses.shown import show_all

        function = getattr(self.module, "show", None)
        return show_all(rows) if function is None else function(rows, **self._pick_settings(function))

    def describe_differences(self, subjects: Sequence["Subject"], rows: "Rows") -> list[str]:
        """Describe how the setting differs from the paper's; if the module does not, how encoders and tasks do."""
        from isobench.analyses.subject import collect_scale_notes

        function = getattr(self.module, "describe_differences", None)
        own = (
            collect_scale_notes(subjects, "encoder", "task")
            if function is None
            else function(subjects, rows, **self._pick_settings(function))
        )
        warnings = [f"{subject.encoder}: {warning}" for subject in subjects for warning in subject.warnings]
        return list(dict.fromkeys([*own, *warnings]))

    def _pick_settings(self, function: Callable[..., Any]) -> dict[str, Any]:
        wanted = inspect.signature(function).parameters
        return {name: value for name, value in self.settings.items() if name in wanted}


def load_analysis(analysis: Mapping[str, Any]) -> Analysis:
    """Import the module that ``analysis._target_`` names, and check the settings beside it.

    Raises:
        UserError: there is no such module, or its ``compute`` can't take these settings.
    """
    target = str(analysis.get("_target_") or "").removesuffix(OLD_ENDING)
    if not target:
        raise UserError("analysis._target_ must name a module, such as isobench_papers.isobn.ev")
    try:
        module = importlib.import_module(target)
    except Exception as error:  # a module may raise anything
        reason = extract_first_line(error)
        raise UserError(f"analysis._target_={target} can't be imported: {reason}; {GUIDE}") from error
    if not callable(getattr(module, "compute", None)):
        raise UserError(f"analysis._target_={target} has no function compute: {GUIDE}")
    settings = {name: value for name, value in analysis.items() if name not in RUNNER_SETTINGS}
    check_settings(module.compute, settings)
    return Analysis(module, settings)


def check_settings(compute: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise UserError unless a function can be called with the settings.

    Args:
        compute: takes the runs' subjects, then the settings; their annotations carry types and bounds.
        settings: what the config's ``analysis`` has for it.

    Raises:
        UserError: a setting without a parameter, a parameter without a setting, a value out of its bounds.
    """
    parameters = dict(list(inspect.signature(compute).parameters.items())[1:])
    for name in settings:
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise UserError(f"analysis.{name} is no setting of {compute.__module__}; it has: {known}")
    for name, parameter in parameters.items():
        if name in settings:
            hint = Any if parameter.annotation is parameter.empty else parameter.annotation
            check_value(f"analysis.{name}", settings[name], hint)
        elif parameter.default is parameter.empty:
            raise UserError(f"analysis.{name} must be set: add +analysis.{name}=...")


def _check_rows(rows: Any) -> None:
    if not isinstance(rows, Mapping):
        raise UserError(f"compute returned {type(rows).__name__}: return rows by name, {{NAME: [{{...}}, ...]}}")
    for name, own in rows.items():
        if not isinstance(name, str) or Path(name).name != name:
            raise UserError(f"compute named its rows {name}: use a file name without folders")
        if isinstance(own, str) or not isinstance(own, Iterable) or not all(isinstance(row, Mapping) for row in own):
            raise UserError(f"compute must return its rows {name} as a list of mappings, one for each row")
