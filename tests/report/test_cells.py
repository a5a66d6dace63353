"""Cells: the comparison with plain fine-tuning, and one Holm's correction for all of a report."""

import math

import pytest
from sample_report import list_cells

from isobench.report.cells import compare, finish_cells
from isobench.statistics.resampling import permutation_test
from isobench.statistics.seeds import hedges_g, holm, student, welch


def test_compare_holds_each_statistic_of_the_two_vectors():
    ours, base = [4.0, 5.0, 7.0], [1.0, 2.0, 3.0]
    found = compare(ours, base)
    assert found["difference"] == pytest.approx(10 / 3)
    assert (found["p"], found["p_student"]) == (welch(ours, base), student(ours, base))
    assert found["p_permutation"] == permutation_test(ours, base) == pytest.approx(0.1)
    assert [found[name] for name in ("effect", "effect_low", "effect_high")] == list(hedges_g(ours, base))
    assert found["mark"] == "*"
    assert compare(base, ours)["mark"] == "\N{DAGGER}"  # the sign is that of ours less plain's
    assert compare(base, ours)["difference"] == pytest.approx(-10 / 3)


def test_compare_has_no_test_where_the_seeds_allow_none():
    single = compare([2.0], [1.0])
    assert (single["difference"], single["mark"]) == (1, "")
    undefined = compare([1.0, math.nan], [1.0, 2.0])
    assert math.isnan(undefined["difference"])
    tests = ("p", "p_permutation", "p_student", "effect", "effect_low")
    assert all(math.isnan(found[name]) for found in (single, undefined) for name in tests)


def test_all_tables_are_one_family_and_a_repeated_column_counts_once():
    one, two, three = ([1.0, 2, 3], [4.0, 5, 7]), ([1.0, 2, 3], [2.0, 3, 5]), ([1.0, 2, 4], [1.0, 2, 3])

    def table(name, **arms):
        ours, base = ({column: pair[place] for column, pair in arms.items()} for place in (0, 1))
        return list_cells({"none": base, "m": ours}, name=name)

    cells = finish_cells([*table("t1", a=one, b=two, lonely=([1.0], [2.0])), *table("t2", a=one, b=three)])
    adjusted = cells[cells["method"] == "m"].set_index(["table", "column"])["p_holm"]
    expected = holm([welch(*arms) for arms in (one, two, three)])
    assert adjusted["t1", "a"] == adjusted["t2", "a"] == pytest.approx(expected[0])
    assert adjusted["t1", "b"] == pytest.approx(expected[1])  # the same title, other numbers
    assert adjusted["t2", "b"] == pytest.approx(expected[2])
    assert math.isnan(adjusted["t1", "lonely"])
