"""A value is checked against its type hint: type, bounds, entries."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

from isobench.common.errors import UserError
from isobench.config.bounds import (
    NOT_EMPTY,
    PositiveInt,
    above,
    at_least,
    at_most,
    between,
    check_value,
    check_values,
    one_of,
)


class Point(TypedDict):
    x: Annotated[float, at_least(0)]
    label: Any


@dataclass
class Shape:
    points: list[Point]


VALID = [
    (PositiveInt, 1),
    (PositiveInt | None, None),
    (Annotated[float, above(0)], 1),
    (Annotated[float, between(0, 1)], 0.5),
    (Annotated[list[Annotated[float, between(0, 1)]], NOT_EMPTY], (0.1, 0.2)),
    (Annotated[str, one_of("a", "b")], "a"),
    (Point, {"x": 0, "label": None}),
    (Shape, Shape([{"x": 1.0, "label": "a"}])),
    (dict[str, Any], 7),  # not checked
    (int | str, 1.5),  # not checked either
]


@pytest.mark.parametrize(("hint", "value"), VALID)
def test_what_is_valid(hint, value):
    check_value("s", value, hint)


INVALID = [
    (PositiveInt, 0, "s=0 must be at least 1"),
    (PositiveInt, True, "s=True must be a whole number, at least 1"),
    (PositiveInt, 1.0, "s=1.0 must be a whole number, at least 1"),
    (PositiveInt, None, "s=null must be a whole number, at least 1"),
    (PositiveInt | None, "x", "s=x must be a whole number, at least 1"),
    (Annotated[int, at_least(1), at_most(9)], 10, "s=10 must be at most 9"),
    (Annotated[int, at_least(1), at_most(9)], "x", "s=x must be a whole number, at least 1 and at most 9"),
    (Annotated[float, above(0)], 0, "s=0 must be above 0"),
    (Annotated[float, above(0)], math.nan, "s=nan must be a number, above 0"),
    (Annotated[float, above(0)], math.inf, "s=inf must be a number, above 0"),
    (Annotated[float, between(0, 1)], 1, "s=1 must be between 0 and 1"),
    (float, False, "s=False must be a number"),
    (bool, 1, "s=1 must be true or false"),
    (str, 1, "s=1 must be text"),
    (list[str], "ab", "s=ab must be a list [A,B,...], each entry text"),
    (list[str], ["a", 1], "s[1]=1 must be text"),
    (Annotated[list[str], NOT_EMPTY], [], "s=[] must have at least one entry"),
    (Annotated[str, one_of("linear", "constant")], "liner", "s=liner is not known: did you mean linear?"),
    (Annotated[str, one_of("a", "b")], 3, "s=3 is not known: choose one of: a, b"),
    (Point, {"x": 1}, "s={'x': 1} must be a mapping with exactly the keys x, label"),
    (Point, {"x": -1, "label": 0}, "s.x=-1 must be at least 0"),
    (Shape, Shape([{"x": -1, "label": 0}]), "s.points[0].x=-1 must be at least 0"),
]


@pytest.mark.parametrize(("hint", "value", "message"), INVALID)
def test_what_is_invalid(hint, value, message):
    with pytest.raises(UserError) as caught:
        check_value("s", value, hint)
    assert str(caught.value) == message


def test_values_without_a_hint_are_not_checked():
    check_values("part", {"a": 1, "b": "anything"}, {"a": PositiveInt, "c": PositiveInt})
    with pytest.raises(UserError, match=r"^part\.a=0 must"):
        check_values("part", {"a": 0}, {"a": PositiveInt})
    with pytest.raises(UserError, match=r"^a=0 must"):
        check_values("", {"a": 0}, {"a": PositiveInt})
