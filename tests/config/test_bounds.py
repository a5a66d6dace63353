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


UNIT = Annotated[float, above(0), below(1)]
CHECKED = [  # hint, valid values, invalid values
    (PositiveInt, [1], [0, True, 1.0, None]), (PositiveInt | None, [None], ["x"]),
    (Annotated[int, at_least(1), at_most(9)], [1, 9], [10]), (UNIT, [0.5], [0, 1, math.nan, math.inf]),
    (Annotated[list[UNIT], NOT_EMPTY], [[0.1, 0.2]], [[], [2]]), (float, [1], [False]), (bool, [True], [1]),
    (str, ["a"], [1]), (list[str], [["a"]], ["ab", ["a", 1]]), (Annotated[str, one_of("a", "b")], ["a"], ["c", 3]),
    (list[Point], [[{"x": 0, "label": None}]], [[{"x": 1}], [{"x": 1, "label": 0, "y": 1}], [{"x": -1, "label": 0}]]),
    (Shape, [Shape([{"x": 1.0, "label": "a"}])], [Shape([{"x": -1, "label": 0}])]),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "valid", "invalid"), CHECKED)
def test_a_value_is_checked_by_its_hint(hint, valid, invalid):
    for value in valid:
        check_value("s", value, hint)
    for value in invalid:
        with pytest.raises(UserError):
            check_value("s", value, hint)


def test_the_entry_is_named():
    with pytest.raises(UserError, match=r"^s.points\[0\].x=-1"):
        check_value("s", Shape([{"x": -1, "label": 0}]), Shape)
