"""What the report says the runs support: every sentence from made-up runs whose answer is known."""

import copy
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_report import HIGH, LOW, noisy
from sample_report import compared_table as table

from isobench.report.evidence import describe_evidence, format_points
from isobench.report.method_effects import measure_effects
from isobench.statistics.resampling import stratified_permutation_test
from isobench.statistics.seeds import detectable_effect, pooled_sd

NAN = math.nan


def evidence(*tables) -> list[str]:
    return describe_evidence(measure_effects(list(tables)))


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


def test_a_column_in_two_tables_is_one_comparison():
    arms = {"none": {"a": LOW}, "isobn": {"a": HIGH}}
    assert "1 comparison with plain fine-tuning" in said(table(arms), table(arms, name="table2"))


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
    assert "does not help here, lower than chance explains. Mean difference -" in lines["worse"]
    assert "on a, b: no difference shown. Mean difference 0.00 [" in lines["same"]
    assert "p = 1.00 (exact; p = 1.00 after Holm over 3 methods)" in lines["same"]
    p = stratified_permutation_test([(arms["better"][c], arms["none"][c]) for c in columns]).p
    assert p == pytest.approx(2 / 252**2)
    assert "p < 0.001 (exact; p < 0.001 after Holm over 3 methods)" in lines["better"]


def test_a_gain_that_may_be_chance_is_no_difference_shown():
    text = said(table({"none": {"a": noisy(80, 5, 1)}, "isobn": {"a": noisy(80.6, 5, 4)}}))
    (line,) = (line for line in text.splitlines() if line.startswith("isobn on a"))
    assert "isobn on a: no difference shown. Difference +" in line
    assert "higher than" not in text
    difference, low, high = map(float, re.search(r"Difference (\S+) \[(\S+), (\S+)\]", line).groups())
    assert low < 0 < difference < high


def test_what_helps_on_one_task_only_is_said_of_that_task():
    mixed = {"b": noisy(60, 5, 1, sd=9), "c": noisy(60, 5, 2, sd=9)}
    text = said(table({"none": {"a": LOW, **mixed}, "isobn": {"a": HIGH, "b": mixed["c"], "c": mixed["b"]}}))
    (line,) = (line for line in text.splitlines() if line.startswith("isobn on a, b, c"))
    assert "isobn on a, b, c: helps on a (after Holm), not shown to help over all tasks. Mean" in line
    worse = said(table({"none": {"a": HIGH, **mixed}, "isobn": {"a": LOW, "b": mixed["c"], "c": mixed["b"]}}))
    assert "isobn on a, b, c: harms on a (after Holm), not shown to harm over all tasks. Mean" in worse


def test_a_loss_that_may_be_chance_is_no_difference_shown():
    text = said(table({"none": {"a": noisy(80.6, 5, 4)}, "isobn": {"a": noisy(80, 5, 1)}}))
    assert "isobn on a: no difference shown. Difference -" in text
    assert "does not help" not in text


@pytest.mark.parametrize(("by", "shown"), [(-0.004, "0.00"), (0.004, "0.00"), (-0.0, "0.00"), (-0.006, "-0.01")])
def test_next_to_no_difference_has_no_sign(by, shown):
    assert format_points(by) == shown
    assert f"its difference of {shown} points" in said(table({"none": {"a": [80.0]}, "isobn": {"a": [80.0 + by]}}))


def test_the_verdict_rests_on_the_p_after_holm_over_methods():
    base, ours = [1.0, 2.0, 3.0, 3.9], [4.0, 4.1, 4.2, 9.0]  # 2 of C(8, 4) relabellings: p = .029
    alone = said(table({"none": {"a": base}, "x": {"a": ours}}))
    assert "x on a: higher than chance explains." in alone
    both = said(table({"none": {"a": base}, "x": {"a": ours}, "y": {"a": base[::-1]}}))
    assert "p = 0.029 (exact; p = 0.057 after Holm over 2 methods)" in both
    assert "x on a: no difference shown." in both


@settings(deadline=None, max_examples=30)
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


def test_three_seeds_can_not_reach_05_whatever_they_show():
    text = said(table({"none": {"a": LOW[:3]}, "isobn": {"a": HIGH[:3]}}))
    assert "With 3 seeds per method no permutation test on one task can reach p < 0.05" in text
    assert "smallest possible p is 0.10." in text
    assert "isobn on a: helps on a (after Holm), not shown to help by the permutation test." in text
    assert "contain the true value in 89% of cases at best" in text
    five = said(table({"none": {"a": LOW}, "isobn": {"a": HIGH}}))
    assert "no permutation test" not in five
    assert "isobn on a: higher than chance explains." in five


def test_the_difference_that_would_go_unnoticed_is_in_points_at_the_runs_own_spread():
    arms = {"none": {"a": [80.0, 81.0, 82.0], "b": [60.0, 62.0, 64.0]}}
    arms["isobn"] = {"a": [83.0, 84.0, 85.0], "b": [60.0, 62.0, 64.0]}
    low, high = detectable_effect(3), 2 * detectable_effect(3)
    assert pooled_sd([arms["none"]["b"], arms["isobn"]["b"]]) == 2
    assert f"With 3 seeds per method a difference under about {low:.2g} points (a) to {high:.2g} (b) would" in said(
        table(arms)
    )
    one = said(table({name: {"a": columns["a"]} for name, columns in arms.items()}))
    assert "With 3 seeds per method a difference under about 3.1 points would usually go unnoticed" in one
    uneven = {"none": {"a": LOW}, "isobn": {"a": LOW[:2]}}
    assert "With 2 against 5 seeds a difference under" in said(table(uneven))
    assert "With 2 against 5 seeds no permutation test" in said(table(uneven))


def test_single_seeds_are_said_to_allow_no_test():
    text = said(table({"none": {"a": [80.0], "b": [60.0]}, "isobn": {"a": [82.0], "b": [61.0]}}))
    expected = (
        "isobn on a, b: it or plain fine-tuning has a single seed, so no test is possible; "
        "its mean difference of +1.50 points may be chance."
    )
    assert text == expected
    mixed = said(table({"none": {"a": LOW, "b": [60.0]}, "isobn": {"a": HIGH, "b": [61.0]}}))
    assert "isobn on a: higher than chance explains. Difference +5.00" in mixed
    assert "isobn on b: it or plain fine-tuning has a single seed" in mixed


def test_without_anything_to_compare_it_says_so():
    assert said(table({"none": {"a": LOW}})) == "Only plain fine-tuning was run: there is nothing to compare."
    assert said() == "There are no runs."
    alone = said(table({"isobn": {"a": HIGH}, "flow": {"a": LOW}}))
    assert (
        alone
        == "No run of plain fine-tuning has a score to compare with, so whether isobn or flow helps can't be said."
    )
    crashed = said(table({"none": {"a": []}, "isobn": {"a": HIGH}}, troubles={("none", "a"): {"nan_loss": 5}}))
    assert "No run of plain fine-tuning has a score to compare with" in crashed
    assert "plain: failed runs (5 nan_loss on a)" in crashed
    elsewhere = said(table({"none": {"a": LOW}, "isobn": {"b": HIGH}}))
    assert elsewhere == "isobn: its runs can't be compared with those of plain fine-tuning on any task."


def test_published_numbers_are_no_runs():
    nothing = table({"none": {"a": []}, "isobn": {"a": []}})
    assert "can't be said" in said(nothing)
    assert "99.99" not in said(table({"none": {"a": LOW}, "isobn": {"a": HIGH}}))


def test_constant_predictors_and_undefined_scores_are_named_and_in_no_mean():
    arms = {
        "none": {"a": LOW, "b": LOW, "c": LOW},
        "flow": {"a": HIGH, "b": [56.34] * 5, "c": [NAN, 80.0, 81.0, 82.0, 83.0]},
    }
    text = said(table(arms, troubles={("flow", "b"): {"constant_predictor": 5}}))
    assert "flow on a: higher than chance explains. Difference +5.00" in text
    assert "flow: constant predictors (5 on b): no mean includes these tasks" in text
    assert "flow: undefined scores, NaN (1 on c): no mean includes these tasks" in text
    base = said(
        table(arms, troubles={("none", "a"): {"constant_predictor": 1}, ("flow", "b"): {"constant_predictor": 5}})
    )
    assert "plain: constant predictors (1 on a)" in base
    assert "flow: its runs can't be compared with those of plain fine-tuning on any task." in base
    # A constant's correlation is undefined: one trouble, not two.
    both = said(
        table({"none": {"a": LOW}, "flow": {"a": [NAN]}}, troubles={("flow", "a"): {"constant_predictor": 1}})
    )
    assert "constant predictors (1 on a)" in both
    assert "undefined" not in both


def test_failed_and_unfinished_runs_are_named():
    arms = {"none": {"a": LOW}, "flow": {"a": HIGH[:3]}}
    text = said(table(arms, troubles={("flow", "a"): {"out_of_memory": 1, "missing": 2}}))
    assert (
        "flow: failed runs (1 out_of_memory on a): they have no score, and means are of the other runs only" in text
    )
    assert (
        "flow: runs without a result (2 missing on a): no mean includes them, and means may change when they end."
        in text
    )
    assert "flow on a: higher than chance explains. Difference +5.00" in text


def test_columns_of_one_task_show_the_same_runs_and_count_once():
    troubles = {("isobn", c): {"missing": 1} for c in ("MNLI-m", "MNLI-mm")}
    arms = {"none": {"MNLI-m": LOW[:3], "MNLI-mm": LOW[:3]}, "isobn": {"MNLI-m": HIGH[:3], "MNLI-mm": HIGH[:3]}}
    once = said(table(arms, {"MNLI-m": "mnli", "MNLI-mm": "mnli"}, troubles))
    assert "MNLI-mm shows the runs of MNLI-m again" in once
    assert "isobn on MNLI-m: helps on MNLI-m (after Holm), not shown to help by the permutation test." in once
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


def test_isotropy_columns_without_comparison_are_in_no_mean():
    arms = {"none": {"a": LOW}, "isobn": {"a": HIGH}}
    scores = table(arms)
    isotropy = table({"none": {"a I1": [0.9, 0.91]}, "isobn": {"a I1": [0.1, 0.11]}}, name="table4")
    for line in isotropy.lines:
        line.cells["a I1"].comparison = None
    assert said(scores, isotropy) == said(scores)


def test_nothing_is_changed_and_everything_repeats():
    made = table({m: {c: noisy(80, 5, [k, ord(c)]) for c in "abcd"} for k, m in enumerate(("none", "x", "y"))})
    before = copy.deepcopy(made)
    assert evidence(made) == evidence(made)
    assert made == before
    assert "19,999 random relabellings" in said(made)


def test_none_is_no_word_of_the_sentences():
    """``none`` is a method, so a sentence such as "none remains" could be about plain fine-tuning."""
    text = said(table({"none": {"a": LOW, "b": LOW}, "isobn": {"a": LOW[::-1], "b": LOW[::-1]}}))
    assert "After Holm's correction over these 2, no difference is left." in text
    assert "none" not in text.lower().replace(",", " ").split()
