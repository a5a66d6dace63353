"""Checks of what an analysis is given, each mistake said in one line; the settings' before anything is loaded."""

from collections.abc import Mapping, Sequence
from math import ceil, floor, inf, isfinite
from typing import Any

from isobench.analyses.subject import Subject
from isobench.common.errors import UserError
from isobench.common.terminal import format_count

ROUNDINGS = {"ceil": ceil, "floor": floor}  # of d / 100, the principal components that are taken away


def check_integer(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse what is no integer from ``least`` to ``most``; ``name`` is the setting's, below ``analysis``."""
    if type(value) is not int or value < least or (most is not None and value > most):
        bound = "" if most is None else f" and at most {most}"
        raise UserError(f"analysis.{name}={value} must be a whole number, at least {least}{bound}")


def check_number(name: str, value: Any, low: float = -inf, high: float = inf, ends: bool = True) -> None:
    """Refuse what is no number from ``low`` to ``high``; without ``ends`` the two themselves too."""
    if not is_finite_number(value) or not low <= value <= high or (not ends and value in (low, high)):
        raise UserError(f"analysis.{name}={value} must be a number{format_range(low, high, ends)}")


def check_numbers(name: str, values: Any, low: float = -inf, high: float = inf, ends: bool = True) -> None:
    """Refuse what is no list, not empty, of such numbers."""
    known = isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 0
    try:
        for value in values if known else ["nothing"]:
            check_number(name, value, low, high, ends)
    except UserError:
        raise UserError(
            f"analysis.{name}={values} must be a list of numbers{format_range(low, high, ends)}"
        ) from None


def check_keys(name: str, value: Any, keys: Sequence[str]) -> None:
    """Refuse what does not have exactly these keys."""
    if not isinstance(value, Mapping) or set(value) != set(keys):
        raise UserError(f"analysis.{name}={value} must have {', '.join(keys)} and nothing else")


def check_mapping_list(name: str, values: Any, keys: Sequence[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """The parts of a list, each with its name; refuse what is no list or has parts without exactly these keys."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise UserError(f"analysis.{name}={values} must be a list, of {{{', '.join(keys)}}} each")
    parts = [(f"{name}[{place}]", value) for place, value in enumerate(values)]
    for part in parts:
        check_keys(*part, keys)
    return parts


def check_no_calibration(subjects: Sequence[Subject]) -> None:
    """Refuse a calibration, which an analysis of uncalibrated embeddings would leave out unsaid."""
    if any(subject.method != "none" for subject in subjects):
        name = subjects[0].cfg.experiment.name or "this analysis"
        raise UserError(f"{name} looks at embeddings without calibration: leave calibration out")


def no_variance_error(subject: Subject, examples: int) -> UserError:
    """What to raise of embeddings that are all the same."""
    what = f"the embeddings of {subject.encoder} on {subject.task} do not vary"
    return UserError(
        f"{what} over {format_count(examples, 'training example')}; take more of them (task.train_samples)"
    )


def is_finite_number(value: Any) -> bool:
    """Whether it is a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def format_range(low: float, high: float, ends: bool) -> str:
    """A range in words, with a blank before them; nothing if every number is in it."""
    if isfinite(low) and isfinite(high):
        return f" from {low:g} to {high:g}" if ends else f" between {low:g} and {high:g}"
    return (f" of at least {low:g}" if ends else f" above {low:g}") if isfinite(low) else ""
