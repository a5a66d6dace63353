"""Hints and one-line messages."""

import pytest

from isobench.common.errors import extract_first_line, suggest_nearest
from isobench.common.terminal import format_count


def test_the_nearest_choices_are_named_or_all_of_them():
    assert suggest_nearest("isobn_papr", ["none", "isobn_paper", "isobn_released"]).startswith(
        "did you mean isobn_paper"
    )
    assert suggest_nearest("zzz", ["b", "a"]) == "choose one of: a, b"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("too long\nsecond"), "too long"),
        (ValueError("can't be loaded:\n  no such file\nthird"), "can't be loaded: no such file"),
        (ValueError(), "ValueError"),
        (ValueError("ends here:"), "ends here:"),
    ],
)
def test_an_error_is_told_in_one_line(error, line):
    assert extract_first_line(error) == line


def test_counts_have_a_plural():
    assert [format_count(n, "run") for n in (0, 1, 1000)] == ["0 runs", "1 run", "1,000 runs"]
