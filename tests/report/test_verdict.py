"""Check the verdict on made-up runs whose answer is known, and that its numbers are those of the evidence."""

import math
import re

import pytest
from sample_report import HIGH, LOW, compared_table, noisy

from isobench.report.document import OverviewLine
from isobench.report.evidence import describe_evidence
from isobench.report.method_effects import find_detectable_differences, measure_effects
from isobench.report.verdict import write_verdict
from isobench.statistics.resampling import smallest_stratified_p, stratified_permutation_test
from isobench.statistics.seeds import detectable_effect, pooled_sd


def verdict(arms, overview=(), ended=9, total=9, tables=(), **kinds) -> str:
    return write_verdict(measure_effects([compared_table(arms, **kinds), *tables]), overview, ended, total)


def test_a_gain_has_its_interval_and_p():
    said = verdict({"none": {"a": LOW}, "isobn": {"a": HIGH}})
    low, high = re.fullmatch(
        r"isobn gains 5\.00 points over plain \(95% bootstrap interval (\S+) to (\S+), p = 0\.0079\)\.", said
    ).groups()
    (line,) = (
        line
        for line in describe_evidence(measure_effects([compared_table({"none": {"a": LOW}, "isobn": {"a": HIGH}})]))
        if line.startswith("isobn on a")
    )
    assert f"[+{low}, +{high}]" in line


def test_gains_stand_before_losses_and_other_methods_are_counted():
    arms = {
        "none": {c: noisy(80, 5, k) for k, c in enumerate("ab")},
        "worse": {c: noisy(70, 5, k + 5) for k, c in enumerate("ab")},
        "better": {c: noisy(90, 5, k + 9) for k, c in enumerate("ab")},
        "same": {c: noisy(80, 5, k)[::-1] for k, c in enumerate("ab")},
    }
    said = verdict(arms)
    assert re.fullmatch(
        r"better gains \S+ points over plain, mean of 2 tasks \(.* p < 0\.001 after Holm over 3 methods\); "
        r"worse loses \S+ points against plain, mean of 2 tasks \(.*\); the other method shows no difference\.",
        said,
    )


def test_no_difference_says_how_small_the_p_and_what_would_have_been_found():
    arms = {"none": {"a": LOW}, "x": {"a": LOW[::-1]}, "y": {"a": [v + 0.1 for v in LOW]}}
    said = verdict(arms)
    points = pooled_sd([values["a"] for values in arms.values()]) * detectable_effect(5)
    p = 2 * min(stratified_permutation_test([(arms[m]["a"], LOW)]).p for m in "xy")
    assert said == (
        f"No method differs from plain by more than chance (smallest adjusted p = {min(1, p):.2f}; 5 seeds per "
        f"method; one t-test would find differences of {points:.2g} points in 80% of repetitions)."
    )


def test_one_method_without_a_difference_has_its_interval():
    said = verdict({"none": {"a": noisy(80, 5, 1)}, "isobn": {"a": noisy(80.6, 5, 4)}})
    found = re.match(
        r"isobn does not differ from plain by more than chance: (\S+) points "
        r"\(95% bootstrap interval (\S+) to (\S+); "
        r"p = 0\.\d\d; 5 seeds per method; one t-test would find",
        said,
    )
    difference, low, high = map(float, found.groups())
    assert low < difference < high


def test_three_seeds_are_too_few_for_the_test_and_that_is_said():
    base = [80.0, 81.0, 82.0]
    said = verdict({"none": {"a": base}, "x": {"a": [80.5, 81.5, 82.5]}, "y": {"a": base[::-1]}})
    assert said == (
        "3 seeds per method are too few for the permutation test to tell a difference of 2 methods from chance: the "
        "smallest possible p is 0.20 after Holm over 2 methods; seen here: 0.00 to +0.50 points."
    )
    assert smallest_stratified_p([(base, base)]) == pytest.approx(2 / 20)
    assert smallest_stratified_p([(base, base)] * 2) == pytest.approx(2 / 400)
    assert smallest_stratified_p([(LOW, LOW)] * 3) == pytest.approx(2 / 20_000)  # relabellings drawn at random


def test_a_difference_on_one_task_only_is_said_of_that_task():
    mixed = {"b": noisy(60, 5, 1, sd=9), "c": noisy(60, 5, 2, sd=9)}
    said = verdict({"none": {"a": LOW, **mixed}, "isobn": {"a": HIGH, "b": mixed["c"], "c": mixed["b"]}})
    assert said == (
        "Over all tasks no method differs from plain by more than chance; on single tasks 1 difference survives "
        "Holm's correction: isobn on a (+5.00 points)."
    )
    few = verdict({"none": {"a": LOW[:3]}, "isobn": {"a": HIGH[:3]}})
    assert few == (
        "isobn (+5.00 points) differs from plain by Welch's t-test after Holm's correction; 3 seeds per method are "
        "too few for the permutation test."
    )


def test_a_choice_among_more_configurations_is_said_beside_the_gain():
    arms = {"none": {"a": LOW}, "isobn": {"a": HIGH}}
    lines = [OverviewLine("bert", "none", candidates=1), OverviewLine("bert", "isobn", candidates=6)]
    assert "the best of 6 configurations against 1 by these same scores, which p does not account for." in verdict(
        arms, lines
    )
    lines[0].candidates = 6
    assert "configurations" not in verdict(arms, lines)


def test_what_a_gain_lacks_is_said_beside_it():
    troubles = {
        ("none", "a"): {"nan_loss": 1},
        ("none", "b"): {"constant_predictor": 4, "crash": 1},
        ("isobn", "a"): {"crash": 2, "running": 1},
        ("flow", "a"): {"crash": 4},
    }
    arms = {"none": {"a": LOW, "b": LOW}, "isobn": {"a": HIGH, "b": []}, "flow": {"a": [], "b": []}}
    said = verdict(arms, troubles=troubles)
    assert said.startswith("isobn gains 5.00 points over plain (95%")
    assert said.endswith(", p = 0.0079), without 3 runs that failed.")  # isobn was not run on b
    arms["isobn"]["b"] = HIGH
    said = verdict(arms, troubles=troubles)
    assert said.endswith(", p = 0.0079), without 4 runs that failed, without b, where a run predicts one class.")
    assert "without 3 runs that failed" in verdict(arms, troubles=troubles, tasks={"a": "mrpc", "b": "mrpc"})


def test_single_seeds_may_be_chance():
    assert verdict({"none": {"a": [80.0]}, "isobn": {"a": [81.25]}}) == (
        "isobn is 1.25 points above plain, which may be chance: a single seed allows no test."
    )
    assert verdict({"none": {"a": [80.0]}, "x": {"a": [79.0]}, "y": {"a": [82.0]}}) == (
        "The 2 methods' differences from plain (-1.00 to +2.00 points) may be chance: a single seed allows no test."
    )


def test_without_a_comparison_it_says_why():
    assert verdict({"none": {"a": LOW}}) == "Only plain fine-tuning was run: there is nothing to compare."
    assert verdict({"x": {"a": LOW}}).startswith("No run of plain fine-tuning has a score to compare with")
    assert verdict({}, ended=0) == "No run has ended yet."
    assert write_verdict(measure_effects([]), [], 0, 0) == "No run has ended yet."
    constant = {("none", "a"): {"constant_predictor": 5}}
    assert "can't be compared" in verdict({"none": {"a": LOW}, "isobn": {"a": HIGH}}, troubles=constant)


def test_an_unfinished_sweep_says_so_first():
    arms = {"none": {"a": LOW}, "isobn": {"a": HIGH}}
    assert verdict(arms, ended=10, total=12).startswith("So far, with 10 of 12 runs: isobn gains 5.00 points")


def test_the_largest_detectable_difference_of_several_encoders_counts():
    steady = {"none": {"a": [80.0, 80.1, 80.2]}, "x": {"a": [80.0, 80.1, 80.2]}}
    noisy_runs = {"none": {"a": [70.0, 80.0, 90.0]}, "x": {"a": [70.0, 80.0, 90.0]}}
    for order in (1, -1):
        tables = [compared_table(steady), compared_table(noisy_runs, encoder="roberta")][::order]
        found = find_detectable_differences(measure_effects(tables).arms)
        assert found == {"a": pytest.approx(10 * detectable_effect(3))}
    assert not math.isnan(found["a"])
