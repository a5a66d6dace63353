"""The checks that judge claims, each on made-up runs that decide it either way or not at all."""

import math
import re

import numpy as np
import pytest
from made_up_report import PLAIN, make_report, make_runs

from isobench.report.checks import gains, improves, is_better_than, nothing_improves
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED
from isobench.statistics.seeds import ALPHA, Arm, compare_runs
from isobench_papers.isotropy_calibration import checks

CONSTANT = {"failure": "constant_predictor"}


def shifted(shift):
    return [value + shift for value in PLAIN[::-1]]


@pytest.mark.parametrize(("shift", "word"), [(5.0, HOLDS), (-5.0, FAILS), (0.0, UNDECIDED)])
def test_a_gain_is_judged_by_the_interval_of_the_difference(shift, word):
    ours = make_runs("isobn_paper", shifted(shift))
    outcome = improves("isobn_paper")(make_report(*make_runs("none", PLAIN), *ours))
    assert (outcome.word, f"{shift:+.2f}".replace("+0.00", "0.00") in outcome.numbers) == (word, True)
    others = [*make_runs("isobn_original", PLAIN), *make_runs("none", shifted(9))]
    assert is_better_than("isobn_paper", "isobn_original")(make_report(*ours, *others)).word == word


@pytest.mark.parametrize("check", [improves("isobn_paper"), is_better_than("isobn_paper", "none")])
def test_the_best_of_more_configurations_is_not_better_for_it(check):
    for shift, ours, theirs, word in (
        (5, 18, 6, UNDECIDED), (5, 6, 6, HOLDS), (5, 6, 18, HOLDS), (-5, 18, 6, FAILS), (-5, 6, 18, UNDECIDED),
    ):  # fmt: skip
        better = make_runs("isobn_paper", shifted(shift), candidates=ours)
        assert check(make_report(*better, *make_runs("none", PLAIN, candidates=theirs))).word == word


def test_a_single_seed_an_undefined_score_or_no_spread_decides_nothing():
    check = improves("isobn_paper")
    assert check(make_report(*make_runs("none", [70.0]), *make_runs("isobn_paper", [80.0]))).word == NOT_RUN
    assert check(make_report(*make_runs("isobn_paper", PLAIN))).word == NOT_RUN
    better = [*make_runs("none", PLAIN), *make_runs("isobn_paper", shifted(5))]
    undefined = [*make_runs("none", PLAIN, task="sts"), *make_runs("isobn_paper", [80.0, math.nan], task="sts")]
    assert check(make_report(*better, *undefined)).word == UNDECIDED
    flat = [*make_runs("none", [70.0] * 5), *make_runs("isobn_paper", [75.0] * 5)]
    assert check(make_report(*flat)).word == UNDECIDED


def test_a_constant_predictor_is_in_no_mean():
    better = [*make_runs("none", PLAIN), *make_runs("isobn_paper", shifted(5))]
    constant = make_runs("isobn_paper", [10.0] * 5, task="mrpc", **CONSTANT)
    constant += make_runs("none", PLAIN, task="mrpc")
    outcome = improves("isobn_paper")(make_report(*better, *constant))
    assert outcome.word == UNDECIDED  # its collapse is not hidden
    assert outcome.numbers.startswith("isobn_paper on rte accuracy +5.00 points [")
    assert gains(4, 6, "isobn_paper")(make_report(*better, *constant)).word == UNDECIDED
    swapped = [run | {"method": {"none": "isobn_paper"}.get(run["method"], "none")} for run in constant]
    assert improves("isobn_paper")(make_report(*better, *swapped)).word == HOLDS  # plain fine-tuning's collapse


@pytest.mark.parametrize("constant", [("none",), ("isobn_paper",), ("none", "isobn_paper")])
def test_constant_predictors_were_run(constant):
    plain, ours = (
        make_runs(method, scores, **(CONSTANT if method in constant else {}))
        for method, scores in (("none", PLAIN), ("isobn_paper", shifted(5)))
    )
    for check in (improves("isobn_paper"), nothing_improves):
        assert check(make_report(*plain, *ours)).word == UNDECIDED


def test_nothing_improves_is_about_gains_that_survive_holm_and_runs_that_would_show_them():
    plain = make_runs("none", PLAIN)
    failed = nothing_improves(make_report(*plain, *make_runs("cosine", shifted(9)), *make_runs("flow", PLAIN[::-1])))
    assert failed == (FAILS, "1 of 2 comparisons on rte accuracy are gains that survive Holm: cosine on rte accuracy")
    assert nothing_improves(make_report(*plain)).word == NOT_RUN
    assert nothing_improves(make_report(*plain[:1], *make_runs("cosine", [79.0]))).word == NOT_RUN
    loss, wide = ([*plain, *make_runs("cosine", shifted(shift))] for shift in (-9, 0.2))
    assert nothing_improves(make_report(*loss)).word == HOLDS  # a loss is no gain
    assert nothing_improves(make_report(*wide)).word == UNDECIDED
    scores = [70 + (value - 70) / 4 for value in PLAIN]
    close = [*make_runs("none", scores), *make_runs("cosine", scores[::-1])]
    assert nothing_improves(make_report(*close)).word == HOLDS
    assert nothing_improves(make_report(*close, *(run | {"task": "mrpc"} for run in wide))).word == UNDECIDED
    gain = make_runs("gain", [70.2, 70.3, 70.1, 70.3, 70.1])  # p = .011
    equal = [run for number in range(4) for run in make_runs(f"m{number}", [70.1, 69.9, 70.2, 69.8, 70.0])]
    outcome = nothing_improves(make_report(*make_runs("none", [70.0] * 5), *gain, *equal))
    assert (outcome.word, "survive Holm, 1 without it" in outcome.numbers) == (UNDECIDED, True)


def test_two_methods_that_never_met_are_not_run():
    check, ours = is_better_than("isobn_paper", "isobn_original"), make_runs("isobn_paper", shifted(5))
    assert check(make_report(*ours)).word == NOT_RUN
    assert check(make_report(*ours, *make_runs("isobn_original", PLAIN[:1]))).word == NOT_RUN
    for differs in ({"task": "cola"}, {"scale": "reduced"}, {"head.name": "huggingface"}, {"evaluation.every": "2"}):
        assert check(make_report(*ours, *make_runs("isobn_original", PLAIN, **differs))).word == NOT_RUN


def on_tasks(method, *scores):
    """Three seeds of a method on each of some tasks."""
    return [run for number, task in enumerate(scores) for run in make_runs(method, task, task=f"task{number}")]


def test_most_methods_must_improve_and_none_be_worse():
    plain, better, equal, worse = make_runs("none", PLAIN), shifted(5), shifted(0), shifted(-5)

    def judge(*scores):
        methods = [f"m{number}" for number in range(len(scores))]
        runs = [run for method, values in zip(methods, scores, strict=True) for run in make_runs(method, values)]
        return improves(*methods)(make_report(*plain, *runs)).word

    words = [judge(better, better, equal), judge(better, equal), judge(better, better, worse)]
    assert words == [HOLDS, UNDECIDED, UNDECIDED]
    assert [judge(worse, worse, equal), judge(worse, equal)] == [FAILS, UNDECIDED]


def test_a_share_of_one_asks_for_every_column():
    runs = [*on_tasks("none", PLAIN, PLAIN, PLAIN), *on_tasks("isobn_paper", shifted(9), shifted(9), shifted(-1))]
    for options, word in (({}, HOLDS), ({"share": 1}, UNDECIDED), ({"share": 0.51}, HOLDS)):
        assert improves("isobn_paper", **options)(make_report(*runs)).word == word


@pytest.mark.parametrize(
    ("shift", "spread", "word"),
    [
        (0.9, 0.1, HOLDS), (1.05, 0.1, UNDECIDED), (3.0, 0.1, FAILS), (-3.0, 0.1, FAILS), (0.9, 2.0, UNDECIDED),
        (0.1, 0.8, UNDECIDED),
    ],
)  # fmt: skip
def test_a_gain_of_about_a_point(shift, spread, word):
    plain = [70.0 + number * spread for number in range(5)]
    ours = [value + shift for value in plain[::-1]]
    made, check = [*make_runs("none", plain), *make_runs("isobn_paper", ours)], gains(0.8, 1.0, "isobn_paper")
    assert check(make_report(*made)).word == word
    favoured = [run | {"candidates": 18} if run["method"] == "isobn_paper" else run for run in made]
    assert check(make_report(*favoured)).word == (FAILS if word == FAILS else UNDECIDED)


def test_a_consistent_gain_is_above_on_most_tasks_by_more_than_chance():
    check = checks.nothing_improves_consistently
    for shifts, word in (
        ((9, 9, 9, -1), FAILS), ((9, 9, 9, -500), FAILS),  # a collapse hides no gains
        ((9, 9, -1), HOLDS), ((-9, -9, -9), HOLDS),
        ((0.1, 0.1, -0.1, -0.1), HOLDS), ((0.1, 0.1, 0.1, -0.1), UNDECIDED), ((0.1, 0.1, 0.1), UNDECIDED),  # chance
    ):  # fmt: skip
        plain, ours = on_tasks("none", *[PLAIN] * len(shifts)), on_tasks("cosine", *map(shifted, shifts))
        assert check(make_report(*plain, *ours)).word == word
    assert check(make_report(*make_runs("none", PLAIN), *make_runs("cosine", PLAIN))).word == NOT_RUN  # one task
    plain, ours = on_tasks("none", PLAIN, PLAIN, PLAIN), on_tasks("cosine", shifted(9), shifted(9), [10.0] * 5)
    lost = [run | (CONSTANT if run["task"] == "task2" else {}) for run in ours]
    assert check(make_report(*plain, *lost)).word == HOLDS  # a task that is not learnt is no gain
    several = [run | {"method": f"m{k}"} for k in range(9) for run in on_tasks("", *[shifted(0.6)] * 3)]
    words = [check(make_report(*plain, *(run for run in several if run["method"] < f"m{k}"))).word for k in (1, 9)]
    assert words == [FAILS, UNDECIDED]  # one of nine methods may gain as much by chance


@pytest.mark.slow
def test_equal_methods_seldom_gain_over_all_tasks_together():
    rng, rounds = np.random.default_rng(0), 1000
    found = 0
    for _ in range(rounds):
        arms = [(Arm(ours, (1, 2, 3)), Arm(plain, (1, 2, 3))) for ours, plain in rng.normal(70, 1, (9, 2, 3))]
        found += checks._combine_gains([compare_runs([pair]) for pair in arms]) < ALPHA
    assert 0.015 < found / rounds < 0.035  # half of ALPHA


def test_gains_are_counted_by_students_test_against_chance():
    for shifts, count, word in (
        ((2, 0, 0, 0, 0, 0, 0, 0, 0), 1, HOLDS), ((2, 2, 0, 0, 0, 0, 0, 0, 0), 2, FAILS),  # chance gives one of nine
        ((-2, -2, -2, -2, 0, 0, 0, 0, 0), 0, HOLDS),
    ):  # fmt: skip
        plain, ours = on_tasks("none", *[PLAIN] * len(shifts)), on_tasks("cosine", *map(shifted, shifts))
        outcome = checks.gains_are_few(make_report(*plain, *ours))
        assert (outcome.word, outcome.numbers[:6]) == (word, f"{count} of 9")
    plain = make_runs("none", PLAIN)
    constant = checks.gains_are_few(make_report(*plain, *make_runs("cosine", [75.0] * 5, **CONSTANT)))
    assert constant.numbers.startswith("1 of 1 comparisons")  # as the paper counts them
    for scores in ([75.0], [math.nan] * 5):
        assert checks.gains_are_few(make_report(*plain, *make_runs("cosine", scores))).word == NOT_RUN


def test_most_methods_degrade():
    plain = on_tasks("none", PLAIN, PLAIN)

    def judge(check, **shifts):
        runs = [run for name, shift in shifts.items() for run in on_tasks(name, *[shifted(shift)] * 2)]
        return check(make_report(*plain, *runs)).word

    words = [judge(checks.most_degrade, a=-9, b=-9, c=0.1), judge(checks.most_degrade, a=-9, b=-9, c=0.1, d=9)]
    words += [judge(checks.most_degrade, a=9, b=9), judge(checks.most_degrade, a=-0.1), judge(checks.most_degrade)]
    assert words == [HOLDS, UNDECIDED, FAILS, UNDECIDED, NOT_RUN]


def with_head(method, pairs, **columns):
    """Runs with I1 of their heads and a score; I2 is 1 - I1."""
    runs = make_runs(method, [score for _, score in pairs], **columns)
    isotropies = ({"head/i1_printed": i1, "head/i2_printed": 1 - i1} for i1, _ in pairs)
    return [run | isotropy for run, isotropy in zip(runs, isotropies, strict=True)]


FALLING = [(number / 10, 50.0 - number) for number in range(8)]
RISING = [(number / 10, 50.0 + number) for number in range(8)]


def test_scores_fall_as_the_heads_isotropy_rises():
    unrelated = [(number / 10, score) for number, score in enumerate([3, 1, 4, 1, 5, 9, 2, 6])]
    check = checks.isotropy_lowers_scores
    words = [check(make_report(*with_head("none", pairs))).word for pairs in (FALLING, RISING, unrelated)]
    assert words == [HOLDS, FAILS, UNDECIDED]
    assert check(make_report(*with_head("none", FALLING[:3]))).word == NOT_RUN
    constant = with_head("none", FALLING[:4]) + with_head("cosine", FALLING[4:], **CONSTANT)
    assert check(make_report(*constant)).word == HOLDS  # runs of one class belong to the relation


def test_a_head_must_go_half_of_the_way_to_isotropy_on_three_quarters_of_the_tasks():
    plain, better, worse = [(0.9, 50.0)] * 3, [(0.99, 50.0)] * 3, [(0.92, 50.0)] * 3
    own = [run for task in "abcd" for run in with_head("none", plain, task=task)]

    def judge(*heads):
        ours = (with_head("spectrum_polynomial", head, task=task) for task, head in zip("abcd", heads, strict=False))
        return checks.raises_isotropy(make_report(*own, *(run for runs in ours for run in runs))).word

    assert [judge(better, better, better, worse), judge(better, better, worse, worse)] == [HOLDS, FAILS]
    assert judge() == NOT_RUN
    unmeasured = make_report(*make_runs("none", PLAIN), *make_runs("cosine", PLAIN))
    assert checks.changes_little(isotropy=1)(unmeasured).word == NOT_RUN


def test_learning_is_prevented_where_every_run_predicts_one_class_and_not_every_plain_one():
    plain, ours = make_runs("none", PLAIN), make_runs("cosine", [1.0] * 5, **CONSTANT)

    def judge(*runs):
        return checks.prevents_learning(make_report(*runs)).word

    some = [run | {"failure": None if run["seed"] == 1 else run["failure"]} for run in ours]
    assert [judge(*plain, *ours), judge(*plain, *some)] == [HOLDS, FAILS]
    assert judge(*make_runs("none", PLAIN, **CONSTANT), *ours) == FAILS
    other = [*make_runs("none", PLAIN, task="cola"), *make_runs("cosine", PLAIN, task="cola")]
    assert [judge(*plain, *ours, *other), judge(*plain)] == [UNDECIDED, NOT_RUN]
    on_stsb = [run | {"task": "stsb"} for run in (*plain, *some)]  # one such run makes the mean NaN
    assert judge(*on_stsb) == HOLDS


@pytest.mark.slow
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
        pooled, low, high = checks.pool_correlations(correlations, (20, 15, 40))
        assert low < pooled < high
        covered += low < truth < high
    assert 0.93 < covered / rounds < 0.965


def test_one_correlation_pools_to_itself_and_a_perfect_one_is_finite():
    pooled, low, high = checks.pool_correlations([0.5], [28])
    ends = [math.tanh(math.atanh(0.5) + k * 1.959964 * math.sqrt(1.06) / 5) for k in (-1, 1)]
    assert (pooled, low, high) == pytest.approx((0.5, *ends))
    assert checks.pool_correlations([-1.0], [8]).value == pytest.approx(-0.99)


TOLERANCE = 1.25
TRANSLATION, SUMMARY, GPU = "isotropy_calibration/table2", "isotropy_calibration/table3", "Titan RTX"
FLOW_COSTS = checks.costs(SUMMARY, GPU, 5.5 / TOLERANCE, 5.5 * TOLERANCE, "flow")
SUMMARIES = ("bart-base", "cnn_dailymail_20k")
PAIRS = [("mbart-large-cc25", "wmt16_en_ro"), ("mbart-large-cc25", "wmt16_de_en_1m")]
SMALL_PAIRS = [("mbart-large-cc25", "wmt16_en_ro_50k"), ("mbart-large-cc25", "wmt16_de_en_50k")]


def timed(method, factor, where=SUMMARIES, **columns):
    """Three seeds that train 50 examples in about ``factor`` seconds each."""
    runs = make_runs(method, PLAIN[:3], **{"encoder": where[0], "task": where[1], **columns})
    return [run | {"training_seconds": 50 * factor * x} for run, x in zip(runs, (1, 1.01, 0.99), strict=True)]


def test_a_factor_is_judged_by_its_interval_against_the_declared_range():
    highest = 5.5 * TOLERANCE
    factors = (5.5, 0.97 * highest, highest, 1.03 * highest, 1.0)  # the third's interval crosses
    words = [FLOW_COSTS(make_report(*timed("none", 1), *timed("flow", factor))).word for factor in factors]
    assert words == [HOLDS, HOLDS, UNDECIDED, FAILS, FAILS]
    numbers = FLOW_COSTS(make_report(*timed("none", 1), *timed("flow", 2.0))).numbers
    assert re.match(r"flow 2\.00x \[1\.9\d, 2\.0\d\]", numbers)


def test_another_machine_can_confirm_a_factor_but_not_contradict_it():
    for factor, word in ((5.5, HOLDS), (2, UNDECIDED)):
        other = {"machine": "NVIDIA H100 80GB HBM3"}
        assert FLOW_COSTS(make_report(*timed("none", 1, **other), *timed("flow", factor, **other))).word == word
        small = {"where": ("bart-scratch", "bulletins"), "scale": "encoder bart-scratch is randomly initialised"}
        assert FLOW_COSTS(make_report(*timed("none", 1, **small), *timed("flow", factor, **small))).word == UNDECIDED


@pytest.mark.parametrize("column", ["status", *checks.TIMED])
def test_times_of_different_machines_or_settings_are_not_divided(column):
    other = [run | {column: "another"} for run in timed("flow", 5.5)]
    assert FLOW_COSTS(make_report(*timed("none", 1), *other)).word == NOT_RUN


def test_an_average_over_tasks_needs_every_task_and_is_the_geometric_mean():
    check = checks.costs(TRANSLATION, GPU, 10.5 / TOLERANCE, 10.5 * TOLERANCE, "flow")
    first = [*timed("none", 1, SMALL_PAIRS[0]), *timed("flow", 6, SMALL_PAIRS[0])]
    assert check(make_report(*first)).word == UNDECIDED
    outcome = check(make_report(*first, *timed("none", 1, SMALL_PAIRS[1]), *timed("flow", 18, SMALL_PAIRS[1])))
    assert outcome.word == HOLDS
    assert outcome.numbers.startswith(f"flow {math.sqrt(6 * 18):.2f}x")


def test_several_methods_have_one_factor_and_need_every_task():
    methods = ("spectrum_polynomial", "spectrum_exponential")
    check = checks.costs(TRANSLATION, GPU, 1.25, 1.63, *methods)

    def judge(*factors):
        named = zip(methods * 2, [PAIRS[0]] * 2 + [PAIRS[1]] * 2, factors, strict=False)
        own = [run for method, where, factor in named for run in timed(method, factor, where)]
        return check(make_report(*(run for where in PAIRS for run in timed("none", 1, where)), *own)).word

    words = [judge(1.3, 1.4, 1.5, 1.6), judge(1.2, 1.4, 1.5, 1.7), judge(2.0, 2.0, 2.0, 2.0), judge(1.3, 1.4, 1.5)]
    assert words == [HOLDS, HOLDS, FAILS, UNDECIDED]  # the last lacks one of the four
    check = checks.costs(TRANSLATION, GPU, 1.25, 1.63, *methods, most=1.5)
    assert [judge(1.3, 1.4, 1.5, 1.6), judge(1.5, 1.5, 1.6, 1.6)] == [HOLDS, UNDECIDED]
