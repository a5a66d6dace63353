"""Bounds that stand beside a setting in its type hint, and the one function that checks a value against its hint.

A hint says what a setting may be: ``lr: Annotated[float, above(0)]``. Hydra reads the type and ignores the bound, so
that dataclasses of settings stay valid structured configs; ``check_value`` reads both.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from isobench.common.errors import UserError, suggest_nearest

TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


@dataclasses.dataclass(frozen=True)
class Bound:
    """A condition on a value.

    Args:
        is_met: whether a value of the hint's type fulfils the condition.
        message: what to say after ``SETTING=VALUE`` of a value that does not, such as "must be at least 1".
        choices: all valid values, if the bound is a list of them; the error then names the nearest.
    """

    is_met: Callable[[Any], bool]
    message: str
    choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Rule:
    """A type hint, taken apart once so that many values can be checked against it quickly.

    Args:
        hint: the hint, without ``None``.
        is_optional: whether null is allowed.
        kind: the type that a value must have.
        bounds: the bounds that it must be within.
        entry: the rule for the entries of a list.
        has_parts: whether a value is a dataclass or TypedDict, whose own values have rules.
    """

    hint: Any
    is_optional: bool
    kind: Any
    bounds: tuple[Bound, ...]
    entry: "Rule | None"
    has_parts: bool


def at_least(least: float) -> Bound:
    """Bound a number from below, ``least`` included."""
    return Bound(lambda value: value >= least, f"must be at least {least}")


def at_most(most: float) -> Bound:
    """Bound a number from above, ``most`` included."""
    return Bound(lambda value: value <= most, f"must be at most {most}")


def above(low: float) -> Bound:
    """Bound a number from below, ``low`` excluded."""
    return Bound(lambda value: value > low, f"must be above {low}")


def between(low: float, high: float) -> Bound:
    """Bound a number on both sides, both excluded."""
    return Bound(lambda value: low < value < high, f"must be between {low} and {high}")


def one_of(*choices: str) -> Bound:
    """Allow only these texts."""
    return Bound(lambda value: value in choices, f"must be one of {', '.join(choices)}", choices)


# One rule for the names of tasks, encoders, methods, experiments and splits: they become parts of the names of files
# and of W&B runs, and cells of tables in many formats. W&B allows 64 characters.
NAME = Bound(
    lambda name: re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", name) is not None,
    "must be a name: letters, digits, _, - and . only, at most 64, no - or . to begin with",
)
FOLDER_BELOW = Bound(
    lambda path: re.fullmatch(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*", path) is not None,
    "must be a folder below data.root: names with / between them, no .. and no / to begin with",
)
Folder = Annotated[
    str,
    Bound(lambda text: bool(text.strip()), "is empty: name a folder"),
    Bound(lambda text: "://" not in text, "is an address: name a folder of this machine"),
]
NOT_EMPTY = Bound(bool, "must have at least one entry")
PositiveInt = Annotated[int, at_least(1)]
NonNegativeInt = Annotated[int, at_least(0)]
PositiveFloat = Annotated[float, above(0)]
NonNegativeFloat = Annotated[float, at_least(0)]
Fraction = Annotated[float, Bound(lambda value: 0 <= value < 1, "must be in [0, 1)")]
Seed = Annotated[int, at_least(0), at_most(2**32 - 1)]  # what NumPy takes; torch and Python take more


def check_value(name: str, value: Any, hint: Any) -> None:
    """Raise UserError unless a value has its hint's type and is within its hint's bounds.

    Lists, dataclasses and TypedDicts are checked entry by entry. NaN and infinity are no numbers, True and False no
    whole numbers. Types other than these and bool, int, float, str are not checked.

    Args:
        name: the setting, as a user writes it, such as ``optimization.lr``; empty for a whole config.
        value: its value.
        hint: its type hint; ``Annotated`` carries bounds, ``X | None`` allows null.

    Raises:
        UserError: one line that names the setting, its value, and what it must be.
    """
    _check(name, value, read_rule(hint))


def _check(name: str, value: Any, rule: Rule) -> None:
    if value is None and rule.is_optional:
        return
    kind = rule.kind
    for bound in rule.bounds:
        if bound.choices and value not in bound.choices:
            raise make_error(name, value, f"is not known: {suggest_nearest(str(value), bound.choices)}")
    if not has_type(value, kind):
        raise make_error(name, value, f"must be {describe_hint(rule.hint)}")
    if rule.entry:
        for place, entry in enumerate(value):
            _check(f"{name}[{place}]", entry, rule.entry)
    elif rule.has_parts:
        _check_parts(name, value if isinstance(value, Mapping) else vars(value), read_rules(kind))
    for bound in rule.bounds:
        if not bound.is_met(value):
            raise make_error(name, value, bound.message)


def _check_parts(name: str, parts: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    for part, rule in rules.items():
        if part in parts:
            _check(f"{name}.{part}" if name else part, parts[part], rule)


def check_values(prefix: str, values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Check every value that has a hint; ``prefix`` is the setting that they are part of, or empty."""
    _check_parts(prefix, values, {name: read_rule(hint) for name, hint in hints.items()})


@functools.cache
def read_rules(kind: Any) -> dict[str, Rule]:
    """Read the rules for the values of a dataclass or TypedDict, by name, from its hints."""
    return {name: read_rule(hint) for name, hint in read_hints(kind).items()}


def read_rule(hint: Any) -> Rule:
    """Take a type hint apart."""
    is_optional = get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)
    if is_optional:
        hint = Union[tuple(option for option in get_args(hint) if option is not NoneType)]  # noqa: UP007
    kind, bounds = split_hint(hint)
    entry = read_rule(get_args(kind)[0]) if get_origin(kind) is list else None
    has_parts = is_typeddict(kind) or (isinstance(kind, type) and dataclasses.is_dataclass(kind))
    return Rule(hint, is_optional, kind, tuple(bounds), entry, has_parts)


def make_error(name: str, value: Any, message: str) -> UserError:
    """Make the error for a setting's value; null is written as users write it."""
    return UserError(f"{name}={'null' if value is None else value} {message}")


@functools.cache
def read_hints(kind: Any) -> dict[str, Any]:
    """Read the type hints of a dataclass's or TypedDict's fields or of a function's parameters, with their bounds."""
    return get_type_hints(kind, include_extras=True)


def split_hint(hint: Any) -> tuple[Any, list[Bound]]:
    """A hint's type and its bounds."""
    if get_origin(hint) is not Annotated:
        return hint, []
    kind, *extras = get_args(hint)
    return kind, [extra for extra in extras if isinstance(extra, Bound)]


def has_type(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type; True for types that are not checked."""
    if kind is int:
        return type(value) is int
    if kind is float:
        return type(value) is int or (type(value) is float and math.isfinite(value))
    if kind in (bool, str):
        return isinstance(value, kind)
    if get_origin(kind) is list:
        return isinstance(value, Sequence) and not isinstance(value, str)
    if is_typeddict(kind):
        return isinstance(value, Mapping) and set(value) == set(read_hints(kind))
    return True


def describe_hint(hint: Any) -> str:
    """Say in words what a hint allows, such as "a whole number, at least 1"."""
    kind, bounds = split_hint(hint)
    if get_origin(kind) is list:
        name = f"a list [A,B,...], each entry {describe_hint(get_args(kind)[0])}"
    elif is_typeddict(kind):
        name = f"a mapping with exactly the keys {', '.join(read_hints(kind))}"
    else:
        name = TYPE_NAMES.get(kind, str(kind))
    limits = " and ".join(bound.message.removeprefix("must be ") for bound in bounds)
    return f"{name}, {limits}" if limits else name
