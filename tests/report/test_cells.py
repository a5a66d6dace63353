"""Cells: the comparison with plain fine-tuning, and one Holm's correction for all of a report."""

import math

import pytest
from sample_report import list_cells

from isobench.report.cells import compare, finish_cells
from isobench.statistics.seeds import Arm, compare_runs, hedges_g, holm


def arm(values):
    return Arm(values, list(range(len(values))))


def test_compare_holds_each_statistic_of_the_two_vectors():
    ours, base = [4.0, 5.0, 7.0], [1.0, 2.0, 3.0]
    found = compare(arm(ours), arm(base))
    assert found["difference"] == pytest.approx(10 / 3)  # ours less plain's
    test = compare_runs([(arm(ours), arm(base))])
    assert [found[name] for name in ("p", "low", "high", "test_seeds")] == [test.p, test.low, test.high, 3]
    assert [found[name] for name in ("effect", "effect_low", "effect_high")] == list(hedges_g(ours, base))
    assert math.isnan(compare(arm([1.0, math.nan]), arm([1.0, 2.0]))["p"])


def test_all_tables_are_one_family_and_a_repeated_column_counts_once():
    one, two, three = ([1.0, 2, 3], [4.0, 5, 7]), ([1.0, 2, 3], [2.0, 3, 5]), ([1.0, 2, 4], [1.0, 2, 3])

    def table(name, **arms):
        ours, base = ({column: pair[place] for column, pair in arms.items()} for place in (0, 1))
        return list_cells({"none": base, "m": ours}, name=name)

    cells = finish_cells([*table("t1", a=one, b=two, lonely=([1.0], [2.0])), *table("t2", a=one, b=three)])
    adjusted = cells[cells["method"] == "m"].set_index(["table", "column"])["p_holm"]
    expected = holm([compare_runs([(arm(ours), arm(base))]).p for ours, base in (one, two, three)])
    assert adjusted["t1", "a"] == adjusted["t2", "a"] == pytest.approx(expected[0])
    assert adjusted["t1", "b"] == pytest.approx(expected[1])  # the same title, other numbers
    assert adjusted["t2", "b"] == pytest.approx(expected[2])
    assert math.isnan(adjusted["t1", "lonely"])


def test_marks_are_those_that_survive_holm_in_the_direction_of_the_difference():
    base, up, down = [70.0, 71.0, 72.0, 73.0], [75.0, 75.5, 77.0, 79.0], [68.0, 70.0, 70.0, 72.5]
    arms = {"none": {"a": base}, "up": {"a": up}, "down": {"a": down}}
    marks = finish_cells(list_cells(arms)).set_index("method")["mark"]
    p = compare_runs([(arm(down), arm(base))]).p
    assert 0.025 < p < 0.05
    assert (marks["up"], marks["down"]) == ("*", "\N{DAGGER}")  # Holm's second step asks for .05
    more = finish_cells(list_cells(arms | {"same": {"a": [70.5, 70.5, 72.5, 72.5]}})).set_index("method")["mark"]
    assert (more["up"], more["down"]) == ("*", "")
