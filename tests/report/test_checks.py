"""The checks that judge claims, each on made-up runs that decide it either way or not at all."""

import math
import re
import statistics

import numpy as np
import pytest
from made_up_report import PLAIN, make_report, make_runs
from scipy import stats

from isobench.report import checks
from isobench.report.checks import (
    TIMED,
    TOLERANCE,
    costs_between,
    costs_times,
    improves,
    is_better_than,
    nothing_improves,
)
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED
from isobench.statistics.seeds import detectable_difference

CONSTANT = {"failure": "constant_predictor"}


def shifted(shift, count=5):
    return [value + shift for value in PLAIN[::-1][:count]]


@pytest.mark.parametrize(("shift", "word"), [(5.0, HOLDS), (-5.0, FAILS), (0.0, UNDECIDED)])
def test_a_gain_is_judged_by_the_interval_of_the_difference(shift, word):
    ours = make_runs("isobn_paper", shifted(shift))
    outcome = improves("isobn_paper")(make_report(*make_runs("none", PLAIN), *ours))
    assert outcome.word == word
    assert f"isobn_paper on rte accuracy {shift:+.2f} points [".replace("+0.00", "0.00") in outcome.numbers
    others = [*make_runs("isobn_original", PLAIN), *make_runs("none", shifted(9))]
    assert is_better_than("isobn_paper", "isobn_original")(make_report(*ours, *others)).word == word


def test_an_interval_without_a_significant_permutation_test_decides_nothing():
    made = make_report(*make_runs("none", PLAIN[:3]), *make_runs("isobn_paper", [74.0, 75.0, 75.5]))
    outcome = improves("isobn_paper")(made)
    assert "[+4" in outcome.numbers  # the interval excludes 0
    assert (outcome.word, outcome.numbers.split(", ")[-1]) == (UNDECIDED, "p = 0.10")  # 2 of C(6, 3) relabellings


@pytest.mark.parametrize("check", [improves("isobn_paper"), is_better_than("isobn_paper", "none")])
def test_the_best_of_more_configurations_is_not_better_for_it(check):
    def judge(shift, ours, theirs):
        better = make_runs("isobn_paper", shifted(shift), candidates=ours)
        return check(make_report(*better, *make_runs("none", PLAIN, candidates=theirs)))

    favoured = judge(5, 18, 6)
    assert (favoured.word, "selected from 18 and 6 configurations" in favoured.numbers) == (UNDECIDED, True)
    assert (judge(5, 6, 6).word, judge(5, 6, 18).word, judge(-5, 18, 6).word) == (HOLDS, HOLDS, FAILS)
    assert judge(-5, 6, 18).word == UNDECIDED


def test_a_claim_about_one_method_is_not_decided_by_others():
    close = [70.0 + seed / 1000 for seed in range(5)]
    made = make_report(
        *make_runs("none", close), *make_runs("cosine", close[::-1]), *make_runs("isobn_paper", shifted(5))
    )
    assert nothing_improves(made).word == FAILS
    outcome = checks.judge_among(nothing_improves, "cosine")(made)
    assert (outcome.word, outcome.numbers.split(" are ")[0]) == (HOLDS, "0 of 1 comparisons on rte accuracy")


def test_a_single_seed_an_undefined_score_or_no_spread_decides_nothing():
    check = improves("isobn_paper")
    assert check(make_report(*make_runs("none", [70.0]), *make_runs("isobn_paper", [80.0]))).word == NOT_RUN
    assert check(make_report(*make_runs("isobn_paper", PLAIN))).word == NOT_RUN
    better = [*make_runs("none", PLAIN), *make_runs("isobn_paper", shifted(5))]
    undefined = [*make_runs("none", PLAIN, task="sts"), *make_runs("isobn_paper", [80.0, math.nan], task="sts")]
    assert check(make_report(*better, *undefined)) == (
        UNDECIDED,
        "isobn_paper: undefined score (NaN) on sts accuracy",
    )
    flat = check(make_report(*make_runs("none", [70.0] * 5), *make_runs("isobn_paper", [75.0] * 5)))
    assert (flat.word, "no spread" in flat.numbers) == (UNDECIDED, True)


def test_a_constant_predictor_is_in_no_mean():
    better = [*make_runs("none", PLAIN), *make_runs("isobn_paper", shifted(5))]
    constant = [
        *make_runs("none", PLAIN, task="mrpc"),
        *make_runs("isobn_paper", [10.0] * 5, task="mrpc", **CONSTANT),
    ]
    numbers = improves("isobn_paper")(make_report(*better, *constant)).numbers
    assert numbers.startswith("isobn_paper on rte accuracy +5.00 points [")
    assert numbers.endswith("(left out, constant predictors: mrpc)")


@pytest.mark.parametrize("constant", [("none",), ("isobn_paper",), ("none", "isobn_paper")])
def test_constant_predictors_were_run(constant):
    """The outcome is undecided, and names the task and the method; it does not ask for runs that are there."""
    arms = {"none": PLAIN, "isobn_paper": shifted(5)}
    own = [
        run
        for method, scores in arms.items()
        for run in make_runs(method, scores, **(CONSTANT if method in constant else {}))
    ]
    outcome = improves("isobn_paper")(make_report(*own))
    assert outcome == (UNDECIDED, "isobn_paper: no task can be compared (left out, constant predictors: rte)")
    outcome = nothing_improves(make_report(*own))
    assert (outcome.word, outcome.numbers.endswith("constant predictors: isobn_paper on rte")) == (UNDECIDED, True)


def test_nothing_improves_says_what_is_true_if_no_task_is_left():
    constant = make_runs("cosine", PLAIN, **CONSTANT)
    single = [*make_runs("none", [70.0], task="mrpc"), *make_runs("cosine", [70.1], task="mrpc")]
    outcome = nothing_improves(make_report(*make_runs("none", PLAIN), *constant, *single))
    assert outcome.word == UNDECIDED
    assert outcome.numbers.startswith("no task is left to test")
    assert "every score" not in outcome.numbers


def test_nothing_improves_is_about_gains_that_survive_holm_and_runs_that_would_show_them():
    plain = make_runs("none", PLAIN)
    failed = nothing_improves(make_report(*plain, *make_runs("cosine", shifted(9)), *make_runs("flow", PLAIN[::-1])))
    assert failed == (FAILS, "1 of 2 comparisons on rte accuracy are gains that survive Holm: cosine on rte accuracy")
    assert nothing_improves(make_report(*plain)).word == NOT_RUN
    assert nothing_improves(make_report(*plain[:1], *make_runs("cosine", [79.0]))).word == NOT_RUN
    blind = nothing_improves(make_report(*plain, *make_runs("cosine", shifted(-9))))
    least = detectable_difference(statistics.stdev(PLAIN), 5)
    assert least > 1
    assert (blind.word, f"differences under {least:.2g} points" in blind.numbers) == (UNDECIDED, True)
    scores = [70 + (value - 70) / 4 for value in PLAIN]
    close = [*make_runs("none", scores), *make_runs("cosine", scores[::-1])]
    assert nothing_improves(make_report(*close)).word == HOLDS
    wide = [*make_runs("none", PLAIN, task="mrpc"), *make_runs("cosine", PLAIN[::-1], task="mrpc")]
    assert nothing_improves(make_report(*close, *wide)).word == UNDECIDED
    single = [*make_runs("none", [70.0], task="mrpc"), *make_runs("cosine", [70.1], task="mrpc")]
    assert "1 more can't be tested" in nothing_improves(make_report(*close, *single)).numbers


def test_two_methods_that_never_met_are_not_run():
    check, ours = is_better_than("isobn_paper", "isobn_original"), make_runs("isobn_paper", shifted(5))
    assert check(make_report(*ours)).word == NOT_RUN
    assert check(make_report(*ours, *make_runs("isobn_original", PLAIN[:1]))).word == NOT_RUN
    for differs in ({"task": "cola"}, {"scale": "reduced"}, {"head.name": "huggingface"}, {"evaluation.every": "2"}):
        assert check(make_report(*ours, *make_runs("isobn_original", PLAIN, **differs))).word == NOT_RUN
    other = is_better_than("isobn_paper", "isobn_original", ["cola"])
    assert other(make_report(*ours, *make_runs("isobn_original", PLAIN))).word == NOT_RUN


def test_runs_that_predict_one_class_count_and_are_said():
    own = [*make_runs("isobn_paper", shifted(0)), *make_runs("isobn_original", shifted(-30), **CONSTANT)]
    outcome = is_better_than("isobn_paper", "isobn_original")(make_report(*own))
    assert outcome.word == HOLDS
    assert outcome.numbers.endswith("(rte; 5 of 5 runs of isobn_original predict one class)")


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "theirs"), [(18, 6), (6, 6), (6, 18)])
def test_without_a_difference_a_claim_is_seldom_decided_whatever_the_budgets(ours, theirs):
    rng, repeats, decided = np.random.default_rng(0), 60, 0
    for _ in range(repeats):
        runs = []
        for task in map(str, range(14)):  # as many as the paper's encoders and tasks
            for method, count in (("isobn_paper", ours), ("isobn_original", theirs)):
                scores = rng.normal(80, 1, (count, 5))  # configurations, seeds: all equally good
                runs += make_runs(method, scores[scores.mean(1).argmax()], task=task, candidates=count)
        decided += is_better_than("isobn_paper", "isobn_original")(make_report(*runs)).word in (HOLDS, FAILS)
    # At a level of .05 more than 8 of 60 have a probability of .005. Budgets of 18 and 6 decide more
    # often if the check takes them for equal.
    assert decided <= 8


def measured(pairs, **columns):
    """Runs with an I1 of their embeddings and a score."""
    runs = make_runs("none", [score for _, score in pairs], **columns)
    return [{**run, "embedding/i1": i1} for run, (i1, _) in zip(runs, pairs, strict=True)]


RELATED = [(number / 10, 50.0 + number) for number in range(8)]


def test_isotropy_and_score():
    unrelated = [(number / 10, score) for number, score in enumerate([3, 1, 4, 1, 5, 9, 2, 6])]
    many = [(number / 80, 50.0 + number * 31 % 80) for number in range(80)]
    judged = [
        checks.isotropy_is_unrelated(make_report(*measured(pairs))).word
        for pairs in (RELATED, unrelated, many, many[:40], RELATED[:3])
    ]
    assert judged == [FAILS, UNDECIDED, HOLDS, UNDECIDED, NOT_RUN]  # few runs would show little


def test_constant_and_undefined_isotropy_is_left_out_without_a_warning(recwarn):
    constant = measured([(0.5, 50.0 + number) for number in range(8)], task="cola")
    outcome = checks.isotropy_is_unrelated(
        make_report(*constant, *measured([(math.nan, 50.0)] * 3), *measured(RELATED))
    )
    assert outcome.word == FAILS
    assert "with I1: rte +1.00 (8 runs); 1 of 1 with p < 0.05 after Holm; left out" in outcome.numbers
    assert outcome.numbers.endswith("left out, I1 or score is constant: cola, bert")
    assert checks.isotropy_is_unrelated(make_report(*constant)).word == UNDECIDED
    assert not recwarn.list


def test_the_relation_is_corrected_over_tasks():
    weak = [(1, 1), (2, 3), (3, 2), (4, 5), (5, 4), (6, 6)]  # rho = 1 - 6 * 4 / 210 = .89, p = .02
    none = [(1, 3), (2, 1), (3, 5), (4, 6), (5, 2), (6, 4)]
    assert checks.isotropy_is_unrelated(make_report(*measured(weak))).word == FAILS
    others = [run for task in "abcd" for run in measured(none, task=task)]
    outcome = checks.isotropy_is_unrelated(make_report(*measured(weak), *others))
    assert (outcome.word, "0 of 5 with p < 0.05 after Holm" in outcome.numbers) == (UNDECIDED, True)


def test_pooled_correlations_have_the_coverage_of_their_interval():
    """Spearman's correlation of two normal variables with correlation r is 6 / pi asin(r / 2)."""
    generator, covered, rounds = np.random.default_rng(7), 0, 2000
    truth = 6 / np.pi * np.arcsin(0.4 / 2)
    for _ in range(rounds):
        correlations = []
        for size in (20, 15, 40):
            x = generator.standard_normal(size)
            y = 0.4 * x + math.sqrt(1 - 0.4**2) * generator.standard_normal(size)
            correlations.append(np.corrcoef(x.argsort().argsort(), y.argsort().argsort())[0, 1])
        low, pooled, high, _ = checks.pool_correlations(correlations, (20, 15, 40))
        assert low < pooled < high
        covered += low < truth < high
    assert 0.93 < covered / rounds < 0.965


def test_correlations_that_differ_are_not_called_unrelated():
    """Eight correlations of about +.3 and -.3 pool to 0 within .3, but they are not one correlation."""
    up = [(number, number if number % 5 < 2 else number * 7 % 25) for number in range(25)]
    own = [run for k in range(8) for run in measured([(x, -y if k % 2 else y) for x, y in up], task=f"t{k}")]
    assert checks.isotropy_is_unrelated(make_report(*own)).word == UNDECIDED
    *interval, p_equal = checks.pool_correlations([0.4, -0.4] * 4, [25] * 8)
    assert max(map(abs, interval)) < checks.NO_RELATION
    assert p_equal == pytest.approx(stats.chi2.sf(8 * (25 - 3) / 1.06 * math.atanh(0.4) ** 2, 7))
    assert p_equal < 0.05


def test_one_correlation_pools_to_itself():
    low, pooled, high, p_equal = checks.pool_correlations([0.5], [28])
    assert (p_equal, pooled) == (1, pytest.approx(0.5))
    ends = [math.tanh(math.atanh(0.5) + k * 1.959964 * math.sqrt(1.06) / 5) for k in (-1, 1)]
    assert (low, high) == pytest.approx(ends)


def spectrum(i2, **columns):
    return make_runs("spectrum_polynomial", [50.0], **{"head/i2_printed": i2}, **columns)


def test_collapses_is_judged_by_runs_whose_head_is_as_isotropic_as_printed():
    check = checks.collapses(0.002, "spectrum_polynomial")
    assert check(make_report(*spectrum(7e-4, **CONSTANT), *spectrum(0.0))).word == HOLDS
    assert [check(make_report(*spectrum(i2))).word for i2 in (7e-4, 0.0)] == [FAILS, FAILS]
    # A constant run with another head is no evidence for the claim, and does not outweigh evidence against it.
    outcome = check(make_report(*spectrum(0.4, **CONSTANT), *spectrum(7e-4)))
    assert outcome == (FAILS, "0 of 1 runs with an I2 of at most 0.002 predict one class")
    assert [check(make_report(*spectrum(i2, **CONSTANT))).word for i2 in (0.2, None, math.nan)] == [UNDECIDED] * 3
    assert check(make_report(*make_runs("none", [50.0]))).word == NOT_RUN


def test_collapses_leaves_out_tasks_where_plain_fine_tuning_predicts_one_class_too():
    check = checks.collapses(0.002, "spectrum_polynomial")
    plain = [*make_runs("none", [50.0]), *make_runs("none", [50.0], **CONSTANT)]
    outcome = check(make_report(*plain, *spectrum(7e-4, **CONSTANT)))
    assert outcome == (UNDECIDED, "no such run; left out, plain fine-tuning predicts one class too: rte")
    assert check(make_report(*plain, *spectrum(7e-4, **CONSTANT), *spectrum(7e-4, task="mrpc"))).word == FAILS
    assert check(make_report(*plain[:1], *spectrum(7e-4, **CONSTANT))).word == HOLDS


TRANSLATION, SUMMARY, GPU = "isotropy_calibration/table2", "isotropy_calibration/table3", "Titan RTX"
SUMMARIES = ("bart-base", "cnn_dailymail_20k")
PAIRS = [("mbart-large-cc25", "wmt16_en_ro"), ("mbart-large-cc25", "wmt16_de_en_1m")]
SMALL_PAIRS = [("mbart-large-cc25", "wmt16_en_ro_50k"), ("mbart-large-cc25", "wmt16_de_en_50k")]


def timed(method, factor, where=SUMMARIES, **columns):
    """Three seeds that train 50 examples in about ``factor`` seconds each."""
    runs = make_runs(method, PLAIN[:3], **{"encoder": where[0], "task": where[1], **columns})
    return [run | {"training_seconds": 50 * factor * x} for run, x in zip(runs, (1, 1.01, 0.99), strict=True)]


def test_a_factor_is_judged_by_its_interval_against_the_declared_range():
    check = costs_times(SUMMARY, GPU, 5.5, "flow")
    highest = 5.5 * TOLERANCE
    factors = (5.5, 0.97 * highest, highest, 1.03 * highest, 1.0)  # the third's interval crosses
    words = [check(make_report(*timed("none", 1), *timed("flow", factor))).word for factor in factors]
    assert words == [HOLDS, HOLDS, UNDECIDED, FAILS, FAILS]
    outcome = check(make_report(*timed("none", 1), *timed("flow", 2.0)))
    numbers = r"flow 2\.00x \[1\.9\d, 2\.0\d\], on NVIDIA TITAN RTX; agrees from 4\.4x to 6\.88x"
    assert re.match(numbers, outcome.numbers)


def test_another_machine_can_confirm_a_factor_but_not_contradict_it():
    check, ours = costs_times(SUMMARY, GPU, 5.5, "flow"), {"machine": "NVIDIA H100 80GB HBM3"}
    assert check(make_report(*timed("none", 1, **ours), *timed("flow", 5.5, **ours))).word == HOLDS
    outcome = check(make_report(*timed("none", 1, **ours), *timed("flow", 2, **ours)))
    assert (outcome.word, outcome.numbers.endswith("of another machine, Titan RTX")) == (UNDECIDED, True)


@pytest.mark.parametrize("factor", [1.2, 5.5])
def test_other_encoders_and_data_decide_nothing(factor):
    small = {"where": ("bart-scratch", "bulletins"), "scale": "encoder bart-scratch is randomly initialised"}
    outcome = costs_times(SUMMARY, GPU, 5.5, "flow")(
        make_report(*timed("none", 1, **small), *timed("flow", factor, **small))
    )
    assert outcome.word == UNDECIDED
    assert outcome.numbers.startswith(f"flow {factor:.2f}x [")


@pytest.mark.parametrize("column", ["status", *TIMED])
def test_times_of_different_machines_or_settings_are_not_divided(column):
    other = [run | {column: "another"} for run in timed("flow", 5.5)]
    assert costs_times(SUMMARY, GPU, 5.5, "flow")(make_report(*timed("none", 1), *other)).word == NOT_RUN


def test_one_seed_or_none_has_no_interval():
    check = costs_times(SUMMARY, GPU, 5.5, "flow")
    assert check(make_report()).word == NOT_RUN
    assert check(make_report(*timed("none", 1))).word == NOT_RUN
    outcome = check(make_report(*timed("none", 1)[:1], *timed("flow", 5.5)[:1]))
    assert (outcome.word, "fewer than two seeds" in outcome.numbers) == (NOT_RUN, True)


def test_an_average_over_tasks_needs_every_task_and_is_the_geometric_mean():
    check = costs_times(TRANSLATION, GPU, 10.5, "flow")
    first = [*timed("none", 1, SMALL_PAIRS[0]), *timed("flow", 6, SMALL_PAIRS[0])]
    outcome = check(make_report(*first))
    assert outcome.word == UNDECIDED
    assert outcome.numbers.endswith("not measured: flow on wmt16_de_en_50k (mbart-large-cc25)")
    outcome = check(make_report(*first, *timed("none", 1, SMALL_PAIRS[1]), *timed("flow", 18, SMALL_PAIRS[1])))
    assert outcome.word == HOLDS
    assert outcome.numbers.startswith(f"flow {math.sqrt(6 * 18):.2f}x")


def test_a_range_must_hold_for_every_method_and_task():
    methods = ("spectrum_polynomial", "spectrum_exponential")
    check = costs_between(TRANSLATION, GPU, 1.25, 1.63, *methods)

    def judge(*factors):
        named = zip(methods * 2, [PAIRS[0]] * 2 + [PAIRS[1]] * 2, factors, strict=False)
        own = [run for method, where, factor in named for run in timed(method, factor, where)]
        return check(make_report(*(run for where in PAIRS for run in timed("none", 1, where)), *own)).word

    words = [judge(1.3, 1.4, 1.5, 1.6), judge(1.3, 1.4, 1.5, 1.63), judge(1.3, 1.4, 1.5, 2.0), judge(1.3, 1.4, 1.5)]
    assert words == [HOLDS, UNDECIDED, FAILS, UNDECIDED]  # the last lacks one of the four
