"""Checks of an analysis before anything is loaded: its settings by its function's parameters, its subjects."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isobench.common.errors import UserError
from isobench.common.terminal import format_count
from isobench.config.bounds import check_value

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

ROUNDINGS = {"ceil": math.ceil, "floor": math.floor}  # of d / 100, the number of principal components removed


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


def check_no_calibration(subjects: Sequence["Subject"]) -> None:
    """Raise UserError if a subject has a calibration, for an analysis that would silently ignore it."""
    if any(subject.method != "none" for subject in subjects):
        name = subjects[0].cfg.experiment.name or "this analysis"
        raise UserError(f"{name} looks at embeddings without calibration: leave calibration out")


def no_variance_error(subject: "Subject", examples: int) -> UserError:
    """Build the error for a subject whose embeddings are all the same."""
    return UserError(
        f"the embeddings of {subject.encoder} on {subject.task} do not vary over "
        f"{format_count(examples, 'training example')}; take more of them (task.train_samples)"
    )
