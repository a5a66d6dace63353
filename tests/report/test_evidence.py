"""What the report says the runs support: every sentence from made-up runs whose answer is known."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_report import HIGH, LOW, evidence, list_cells, noisy, verdict
from sample_report import list_cells as table

from isobench.report.cells import finish_cells
from isobench.report.methods import find_detectable_differences
from isobench.statistics.resampling import smallest_stratified_p, stratified_permutation_test
from isobench.statistics.seeds import detectable_effect

NAN = math.nan


def said(*tables) -> str:
    return "\n".join(evidence(*tables))


def test_comparisons_are_counted_with_what_chance_gives_and_what_holm_leaves():
    columns = "abcd"
    arms = {
        "none": dict.fromkeys(columns, LOW),
        "cosine": dict.fromkeys(columns, LOW[::-1]),
        "isobn": dict(zip(columns, [HIGH, LOW[1:], LOW[1:], LOW[1:]], strict=True)),
        "flow": {"a": [x - 0.7 for x in LOW]},
    }
    text = said(table(arms))
    assert (
        "9 comparisons with plain fine-tuning: 2 with p < 0.05 (Welch's t-test, not corrected; 1 better, 1 worse)"
        in text
    )
    assert "chance alone gives about 0.45." in text
    assert "After Holm's correction over these 9, 1 remains: isobn on a (+5.00 points)." in text


def test_methods_that_help_harm_or_do_neither_are_told_apart():
    columns = {"a": 1, "b": 2}
    arms = {
        "none": {c: noisy(80, 5, 10 * k) for c, k in columns.items()},
        "better": {c: noisy(84, 5, 10 * k + 1) for c, k in columns.items()},
        "worse": {c: noisy(76, 5, 10 * k + 2) for c, k in columns.items()},
        "same": {c: noisy(80, 5, 10 * k)[::-1] for c, k in columns.items()},
    }
    lines = {line.split(" on ")[0]: line for line in evidence(table(arms)) if " on a, b: " in line}
    assert "on a, b: higher than chance explains. Mean difference +" in lines["better"]
    assert "lower than chance explains. Mean difference -" in lines["worse"]
    assert "on a, b: no difference shown. Mean difference 0.00 [" in lines["same"]
    assert "p = 1.00 (exact; p = 1.00 after Holm over 3 methods)" in lines["same"]
    p = stratified_permutation_test([(arms["better"][c], arms["none"][c]) for c in columns]).p
    assert p == pytest.approx(2 / 252**2)
    assert "p < 0.001 (exact; p < 0.001 after Holm over 3 methods)" in lines["better"]
    answer = r"better gains .* p < 0\.001 after Holm over 3 methods\); worse loses .*; the other method shows no diff"
    assert re.match(answer, verdict(arms))  # gains stand before losses


def test_the_verdict_rests_on_the_p_after_holm_over_methods():
    base, ours = [1.0, 2.0, 3.0, 3.9], [4.0, 4.1, 4.2, 9.0]  # 2 of C(8, 4) relabellings: p = .029
    alone = said(table({"none": {"a": base}, "x": {"a": ours}}))
    assert "x on a: higher than chance explains." in alone
    both = said(table({"none": {"a": base}, "x": {"a": ours}, "y": {"a": base[::-1]}}))
    assert "p = 0.029 (exact; p = 0.057 after Holm over 2 methods)" in both
    assert "x on a: no difference shown." in both


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(2, 5))
def test_help_is_claimed_only_with_a_higher_mean_and_a_corrected_p_below_05(seed, methods, n):
    names = ["x", "y", "z"][:methods]
    arms = {name: {"a": noisy(80, n, [seed, k]), "b": noisy(60, n, [seed, k, 1])} for k, name in enumerate(names)}
    arms["none"] = {"a": noisy(79, n, [seed, 9]), "b": noisy(59, n, [seed, 9, 1])}
    tests = {
        name: stratified_permutation_test([(arms[name][c], arms["none"][c]) for c in "ab"]).p * methods
        for name in names
    }
    for line in evidence(table(arms)):
        if "higher than chance explains" in line:
            name = line.split(" on ")[0]
            assert sum(np.mean(arms[name][c]) - np.mean(arms["none"][c]) for c in "ab") > 0
            assert min(tests.values()) < 0.05  # Bonferroni over the methods bounds Holm's first step


def test_constant_predictors_and_undefined_scores_are_named_and_in_no_mean():
    arms = {
        "none": {"a": LOW, "b": LOW, "c": LOW},
        "flow": {"a": HIGH, "b": [56.34] * 5, "c": [NAN, 80.0, 81.0, 82.0, 83.0]},
    }
    text = said(table(arms, troubles={("flow", "b"): {"constant_predictor": 5}}))
    assert "flow on a: higher than chance explains. Difference +5.00" in text
    assert "flow: constant predictors (5 on b): no mean includes these tasks" in text
    assert "flow: undefined scores, NaN (1 on c): no mean includes these tasks" in text
    # A constant's correlation is undefined: one trouble, not two.
    both = said(
        table({"none": {"a": LOW}, "flow": {"a": [NAN]}}, troubles={("flow", "a"): {"constant_predictor": 1}})
    )
    assert "constant predictors (1 on a)" in both
    assert "undefined" not in both


def test_columns_of_one_task_show_the_same_runs_and_count_once():
    troubles = {("isobn", c): {"missing": 1} for c in ("MNLI-m", "MNLI-mm")}
    arms = {"none": {"MNLI-m": LOW[:3], "MNLI-mm": LOW[:3]}, "isobn": {"MNLI-m": HIGH[:3], "MNLI-mm": HIGH[:3]}}
    once = said(table(arms, {"MNLI-m": "mnli", "MNLI-mm": "mnli"}, troubles))
    assert "MNLI-mm shows the runs of MNLI-m again" in once
    assert "isobn on MNLI-m: helps on MNLI-m (after Holm), no difference shown by the permutation test." in once
    assert "permutation test p = 0.10" in once
    assert "(1 missing on MNLI-m)" in once
    # As two independent tasks the same runs would seem to prove what they can't.
    assert "p = 0.005" in said(table(arms))


def test_encoders_are_compared_each_with_its_own_base():
    large = table({"none": {"a": HIGH}, "isobn": {"a": HIGH[::-1]}}, encoder="roberta")
    text = said(table({"none": {"a": LOW}, "isobn": {"a": HIGH}}), large)
    assert "isobn (bert) on a: higher than chance explains." in text
    assert "isobn (roberta) on a: no difference shown" in text
    assert "2 comparisons with plain fine-tuning" in text


def test_a_gain_has_its_interval_and_p():
    said = verdict({"none": {"a": LOW}, "isobn": {"a": HIGH}})
    low, high = re.fullmatch(
        r"isobn gains 5\.00 points over plain \(95% bootstrap interval (\S+) to (\S+), p = 0\.0079\)\.", said
    ).groups()
    (line,) = (
        line
        for line in evidence(list_cells({"none": {"a": LOW}, "isobn": {"a": HIGH}}))
        if line.startswith("isobn on a")
    )
    assert f"[+{low}, +{high}]" in line


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


def test_a_choice_among_more_configurations_is_said_beside_the_gain():
    arms = {"none": {"a": LOW}, "isobn": {"a": HIGH}}
    said = verdict(arms, candidates={"isobn": 6})
    assert "the best of 6 configurations against 1 by these same scores, which p does not account for." in said
    assert "configurations" not in verdict(arms, candidates={"isobn": 6, "none": 6})


def test_the_largest_detectable_difference_of_several_encoders_counts():
    steady = {"none": {"a": [80.0, 80.1, 80.2]}, "x": {"a": [80.0, 80.1, 80.2]}}
    noisy_runs = {"none": {"a": [70.0, 80.0, 90.0]}, "x": {"a": [70.0, 80.0, 90.0]}}
    for order in (1, -1):
        tables = [list_cells(steady), list_cells(noisy_runs, encoder="roberta")][::order]
        found = find_detectable_differences(finish_cells([cell for own in tables for cell in own]))
        assert found == {"a": pytest.approx(10 * detectable_effect(3))}
    assert not math.isnan(found["a"])
