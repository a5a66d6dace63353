"""A value is checked against its type hint: type, bounds, entries; errors are one line that names the setting."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

from isobench.common.errors import UserError
from isobench.config.bounds import (
    NOT_EMPTY,
    PositiveInt,
    Section,
    above,
    at_least,
    at_most,
    below,
    check_value,
    one_of,
)


class Point(TypedDict):
    x: Annotated[float, at_least(0)]
    label: Any


@dataclass
class Shape(Section):
    points: list[Point]


VALID = [
    (PositiveInt, 1),
    (PositiveInt | None, None),
    (Annotated[float, above(0)], 1),
    (Annotated[float, above(0), below(1)], 0.5),
    (Annotated[list[Annotated[float, above(0), below(1)]], NOT_EMPTY], [0.1, 0.2]),
    (Annotated[str, one_of("a", "b")], "a"),
    (list[Point], [{"x": 0, "label": None}]),
    (Shape, Shape([{"x": 1.0, "label": "a"}])),
]


@pytest.mark.parametrize(("hint", "value"), VALID)
def test_what_is_valid(hint, value):
    check_value("s", value, hint)


INVALID = [
    (PositiveInt, 0, "s=0"),
    (PositiveInt, True, "s=True"),
    (PositiveInt, 1.0, "s=1.0"),
    (PositiveInt, None, "s=null"),
    (PositiveInt | None, "x", "s=x"),
    (Annotated[int, at_least(1), at_most(9)], 10, "s=10"),
    (Annotated[float, above(0)], 0, "s=0"),
    (Annotated[float, above(0)], math.nan, "s=nan"),
    (Annotated[float, above(0)], math.inf, "s=inf"),
    (Annotated[float, above(0), below(1)], 1, "s=1"),
    (float, False, "s=False"),
    (bool, 1, "s=1"),
    (str, 1, "s=1"),
    (list[str], "ab", "s=ab"),
    (list[str], ["a", 1], "s[1]=1"),
    (Annotated[list[str], NOT_EMPTY], [], "s=[] must have at least one entry"),
    (Annotated[str, one_of("linear", "constant")], "liner", "s=liner is not known: did you mean linear?"),
    (Annotated[str, one_of("a", "b")], 3, "s=3 is not known: choose one of: a, b"),
    (list[Point], [{"x": 1}], "s[0].label"),
    (list[Point], [{"x": 1, "label": 0, "y": 1}], "there is no setting s[0].y"),
    (list[Point], [{"x": -1, "label": 0}], "s[0].x=-1"),
    (Shape, Shape([{"x": -1, "label": 0}]), "s.points[0].x=-1"),
]


@pytest.mark.parametrize(("hint", "value", "message"), INVALID)
def test_what_is_invalid(hint, value, message):
    with pytest.raises(UserError) as caught:
        check_value("s", value, hint)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
