"""Bounds that stand beside a setting in its type hint, checked by pydantic with errors in one line.

A hint says what a setting may be: ``lr: Annotated[float, above(0)]``. Hydra reads the type and ignores the bound, so
that dataclasses of settings stay valid structured configs.
"""

import codecs
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from omegaconf import OmegaConf
from pydantic import AllowInfNan, ConfigDict, GetCoreSchemaHandler, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema
from typing_extensions import is_typeddict

from isobench.common.errors import UserError, suggest_nearest

TYPE_NAMES = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "text"}
RULES = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False, revalidate_instances="always")
at_least, at_most, above, below = Ge, Le, Gt, Lt


@dataclass(frozen=True)
class Bound:
    """A condition on a value of the hint's type.

    ``message`` is what to say after ``SETTING=VALUE`` of a value that does not meet it, such as "must be a name".
    """

    is_met: Callable[[Any], bool]
    message: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: Any) -> Any:
            if not self.is_met(value):
                raise PydanticCustomError("bound", "{message}", {"message": self.message})
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))


@dataclass(frozen=True)
class Choices:
    """A bound that allows only some texts."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


def one_of(*names: str) -> Choices:
    """Allow only these texts."""
    return Choices(names)


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


# Python's codecs of texts that no file is written in.
NO_ENCODINGS = ("idna", "punycode", "unicode-escape", "raw-unicode-escape")


def _is_encoding(name: str) -> bool:
    try:
        return bool("a".encode(name)) and codecs.lookup(name).name not in NO_ENCODINGS
    except (LookupError, ValueError):  # a codec of something else than texts is a LookupError too
        return False


ENCODING = Bound(_is_encoding, "is no encoding of texts: name one of Python's, such as windows-1251 or shift_jis")
Folder = Annotated[
    str,
    Bound(lambda text: bool(text.strip()), "is empty: name a folder"),
    Bound(lambda text: "://" not in text, "is an address: name a folder of this machine"),
]
NOT_EMPTY = Bound(bool, "must have at least one entry")
Number = Annotated[float, AllowInfNan(False)]
PositiveInt = Annotated[int, at_least(1)]
NonNegativeInt = Annotated[int, at_least(0)]
PositiveFloat = Annotated[Number, above(0)]
NonNegativeFloat = Annotated[Number, at_least(0)]
Fraction = Annotated[Number, at_least(0), below(1)]
Seed = Annotated[int, at_least(0), at_most(2**32 - 1)]  # what NumPy takes; torch and Python take more


class Section:
    """What the dataclasses of settings inherit: how pydantic checks them."""

    __pydantic_config__ = RULES


def check_value(name: str, value: Any, hint: Any) -> None:
    """Raise UserError unless a value has its hint's type and is within its hint's bounds.

    Values in lists, dataclasses and TypedDicts are checked too. True and False are no numbers.

    Args:
        name: the setting, as a user writes it, such as ``optimization.lr``; empty for a whole config.
        value: its value.
        hint: its type hint; ``Annotated`` carries bounds, ``X | None`` allows null.
    """
    _validate(name, value, hint, strict=True)


def convert_value(name: str, value: Any, hint: Any) -> Any:
    """Convert a plain value, as a YAML or JSON file holds it, to its hint's type: a mapping to a dataclass."""
    return _validate(name, value, hint, strict=False)


def check_values(prefix: str, values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Check every value that has a hint; ``prefix`` is the setting that they are part of, or empty."""
    for name, hint in hints.items():
        if name in values:
            check_value(f"{prefix}.{name}" if prefix else name, values[name], hint)


@functools.cache
def read_hints(kind: Any) -> dict[str, Any]:
    """Read the type hints of a dataclass's or TypedDict's fields or of a function's parameters, with their bounds."""
    return get_type_hints(kind, include_extras=True)


def find_section(hint: Any) -> Any:
    """Return the dataclass or TypedDict that a hint names, perhaps in a list or with null beside it; else None."""
    classes = [option for option in (hint, *get_args(hint)) if isinstance(option, type)]  # a bound is none
    options = [class_ for class_ in classes if is_dataclass(class_) or is_typeddict(class_)]
    return options[0] if options else None


def _validate(name: str, value: Any, hint: Any, strict: bool) -> Any:
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    try:
        return _make_adapter(hint).validate_python(plain, strict=strict)
    except ValidationError as error:
        raise UserError(_explain(name, hint, error.errors(include_url=False)[0])) from None


@functools.cache
def _make_adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=RULES)
    except PydanticUserError:  # a Section, which has its own rules
        return TypeAdapter(hint)


def _explain(name: str, hint: Any, error: ErrorDetails) -> str:
    """Write pydantic's error on a setting as isobench words errors: ``optimization.lr=x must be a number``."""
    keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error["loc"])
    name = f"{name}{keys}".lstrip(".")
    if error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        *parents, typed = [key for key in error["loc"] if isinstance(key, str)]
        for parent in parents:
            hint = read_hints(find_section(hint))[parent]
        return f"there is no setting {name}: {suggest_nearest(typed, read_hints(find_section(hint)))}"
    if error["type"] == "missing":
        return f"{name} must be set"
    value = "null" if error["input"] is None else error["input"]
    if error["type"] == "literal_error":
        choices = re.findall("'([^']*)'", error["ctx"]["expected"])
        return f"{name}={value} is not known: {suggest_nearest(str(value), choices)}"
    type_name = TYPE_NAMES.get(error["type"].partition("_")[0])
    if type_name and error["type"] != "bound":  # our own bounds have their own words
        return f"{name}={value} must be {type_name}"
    return f"{name}={value} {error['msg'].replace('Input should be', 'must be')}"
