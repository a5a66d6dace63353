"""Labels in a column: find out whether they are classes or scores, check them, and turn classes into numbers."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from isobench.common.errors import UserError, doing
from isobench.common.terminal import format_count, name_some

if TYPE_CHECKING:  # late: a command line is read without it
    import numpy as np

UNLABELLED = -1  # the label of every example in GLUE's test splits, whose labels are hidden
MOST_NUMBERED_CLASSES = 20  # whole numbers of more different values are taken for scores
LARGEST_CLASS = 2**53  # larger whole numbers, such as 1e307, are scores: not each of them has a float of its own
# Names of columns with labels, in small letters.
LABEL_NAMES = ("label", "labels", "class", "category", "target", "score", "sentiment", "rating", "stars")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WHOLE_NUMBER = re.compile(r"(?:\+|(-))?(0|[1-9][0-9]{0,299})(?:\.0*)?")  # 007 and 1e2 are names, and stay as they are
OTHERWISE = ", or name the classes (task.labels=[NAME,...])"
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


def find_classes(values: Sequence[Any], where: str) -> list[str] | None:
    """Return the names of the classes in a column of labels, in order; None if the labels are scores.

    Texts and truth values are classes, in alphabetical order. Numbers are classes if they are whole and have at most
    20 different values, in ascending order; else they are scores.
    """
    names = format_labels(values, where)
    refuse_odd_numbers(names, where, OTHERWISE)
    different = set(names)
    numbers = [number for name in different if (number := parse_number(name)) is not None]
    is_whole = all(number.is_integer() and abs(number) < LARGEST_CLASS for number in numbers)
    if 2 * len(numbers) >= len(different) and not (is_whole and len(different) <= MOST_NUMBERED_CLASSES):
        return None
    return check_classes(names, where, OTHERWISE)


def check_classes(names: Sequence[str], where: str, otherwise: str = "") -> list[str]:
    """Return the different ones of labels that are classes, in order; raise UserError for what may be a mistake.

    That is a single class, a word among numbers, a fraction, -1 beside 0, or two names that differ in case, blanks or
    form alone. ``otherwise`` says what else helps than to correct it.
    """
    refuse_odd_numbers(names, where, otherwise)
    different = sorted(set(names))
    numbers = {name: number for name in different if (number := parse_number(name)) is not None}
    classes = sorted(different, key=lambda name: numbers[name]) if len(numbers) == len(different) else different
    spellings = Counter(map(_simplify, classes))
    alike = [name for name in classes if spellings[_simplify(name)] > 1]
    fractions = [name for name, number in numbers.items() if not number.is_integer()]
    if len(classes) < 2:
        raise UserError(f"{where} has a single class, {', '.join(classes)}: there is nothing to learn")
    if alike:
        problem = f"has the classes {name_some(alike)}, which differ in case or form alone: write them alike"
    elif {UNLABELLED, 0} <= set(numbers.values()):
        problem = "has the label -1 beside 0, which may stand for no label: remove these rows"
    elif fractions and 2 * len(numbers) >= len(classes):
        problem = f"has scores such as {fractions[0]}, not classes: correct or remove these rows"
    else:
        return classes
    raise UserError(f"{where} {problem}{otherwise}")


def _simplify(name: str) -> str | float:
    letters = unicodedata.normalize("NFKC", name).casefold()
    if (number := parse_number(letters)) is not None:
        return number
    visible = "".join(letter for letter in letters if unicodedata.category(letter) != "Cf")
    return re.sub(r"[\s_-]+", " ", visible)


def refuse_odd_numbers(names: Sequence[str], where: str, otherwise: str = "") -> None:
    """Raise UserError if most labels are numbers and some are not (``pos``, ``nan``), or most are written ``1,5``."""
    different = set(names)
    words = {name for name in different if parse_number(name) is None}
    commas = set(filter(DECIMAL_COMMA.fullmatch, words))
    if 2 * len(words) > len(different):
        words = commas if 2 * len(commas) > len(different) else set()
    if words:
        raise UserError(
            f"{where} has numbers, but {min(words)}: correct or remove such rows"
            f"{', and write 1.5 for 1,5' if commas else ''}{otherwise}"
        )


def format_labels(values: Sequence[Any], where: str) -> list[str]:
    """Write labels as texts: 3 and 3.0 as "3", true as "true"; surrounding blanks are dropped."""
    with doing(where):
        names = [_format_label(value) for value in values]
    missing = [number for number, name in enumerate(names, 1) if name == ""]
    if missing:
        count = format_count(len(missing), "row")
        raise UserError(f"{where} has {count} without a label (the first: row {missing[0]}): remove or label them")
    return names


def _format_label(value: Any) -> str:
    if isinstance(value, list | dict):  # several labels of one text would become the name of one class
        raise TypeError(f"a label is a single text or number, not {value}")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        value = value.decode()
    text = "" if value is None or value != value else str(value).strip()  # NaN differs from itself
    whole = WHOLE_NUMBER.fullmatch(text)
    return str(int(f"{whole[1] or ''}{whole[2]}")) if whole else text


def parse_number(text: str) -> float | None:
    """Parse a text as a finite number; None if it is none, such as ``1_0``, which Python takes for 10."""
    number = float(text) if NUMBER.fullmatch(text.strip()) else math.nan
    return number if math.isfinite(number) else None


def parse_numbers(values: Sequence[Any]) -> "np.ndarray":
    """Return labels or scores as numbers [N]; NaN for what is none, such as a list."""
    import numpy as np

    numbers = [value if isinstance(value, int | float) else parse_number(str(value)) for value in values]
    return np.array(numbers, np.float64)  # None becomes NaN


def number_labels(values: Sequence[Any], classes: Sequence[str], where: str) -> list[int]:
    """Turn labels into the numbers of their classes, from 0.

    Where no class's name is a number, labels may also be the classes' numbers.
    """
    names = format_labels(values, where)
    numbers = {_format_label(name): number for number, name in enumerate(classes)}
    if not set(names) <= numbers.keys() and not any(parse_number(name) is not None for name in classes):
        by_number = {str(number): number for number in range(len(classes))}
        numbers = by_number if set(names) <= by_number.keys() else numbers
    by_value = {parse_number(name): number for name, number in numbers.items()}  # 01 of one file is 1 of another
    by_value.pop(None, None)
    numbers = {name: by_value[value] for name in set(names) if (value := parse_number(name)) in by_value} | numbers
    if unknown := sorted(set(names) - numbers.keys()):
        raise UserError(
            f"{where} has the labels {name_some(unknown)}, which are no classes of the task: {', '.join(classes)}"
        )
    return [numbers[name] for name in names]
