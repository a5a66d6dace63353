"""Statistics of few seeds against published tables, worked examples and brute force."""

import itertools
import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from isobench.papers import published
from isobench.statistics.resampling import (
    RANDOM_RELABELLINGS,
    bootstrap_coverage,
    mean_difference,
    mean_difference_interval,
    permutation_test,
    probability_of_improvement,
    smallest_p,
    stratified_permutation_test,
)
from isobench.statistics.seeds import (
    detectable_difference,
    detectable_effect,
    expected_maximum,
    hedges_g,
    holm,
    pooled_sd,
    student,
    welch,
)

# Accuracies of 408 examples, in percent: ties are common, and their differences are not exact in binary.
ACCURACIES = st.lists(st.integers(350, 358), min_size=2, max_size=4)


def percent(correct_examples):
    return [100 * count / 408 for count in correct_examples]


def every_relabelling(tasks):
    """Mean differences of all ways to relabel within tasks, in exact fractions; the first is as it is."""

    def splits(ours, theirs):
        pool = [Fraction(value) for value in (*ours, *theirs)]
        for chosen in itertools.combinations(range(len(pool)), len(ours)):
            rest = [value for i, value in enumerate(pool) if i not in chosen]
            yield statistics.mean([pool[i] for i in chosen]) - statistics.mean(rest)

    return [sum(way) for way in itertools.product(*(splits(*arms) for arms in tasks))]


def two_sided(values):
    above, below = (sum(value >= values[0] for value in values), sum(value <= values[0] for value in values))
    return min(1.0, 2 * min(above, below) / len(values))


def test_welch_on_isobns_table_1():
    """Medians taken for means, five seeds: 7 of 14 below .05, 2 after Holm."""
    cells = published.load_tables("isobn")["table1"].cells
    p = {
        (encoder, column): stats.ttest_ind_from_stats(
            *rows["isobn"][column], 5, *rows["plain"][column], 5, equal_var=False
        ).pvalue
        for encoder, rows in cells.items()
        for column in rows["plain"]
    }
    assert (len(p), sum(value < 0.05 for value in p.values())) == (14, 7)
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))
    assert {key for key, value in adjusted.items() if value < 0.05} == {
        ("roberta-large", "MNLI"),
        ("bert-base-cased", "MRPC"),
    }


def test_holm_leaves_out_what_has_no_p():
    adjusted = holm([float("nan"), 0.01, 0.2])
    assert math.isnan(adjusted[0])
    assert adjusted[1:] == holm([0.01, 0.2]) == [0.02, 0.2]


@settings(deadline=None, max_examples=60)
@given(ACCURACIES, ACCURACIES)
@pytest.mark.filterwarnings("ignore:Precision loss")
def test_both_t_tests_are_scipys(ours, theirs):
    if len(set(ours)) > 1 or len(set(theirs)) > 1:
        for test, equal_variances in ((welch, False), (student, True)):
            assert test(ours, theirs) == pytest.approx(
                stats.ttest_ind(ours, theirs, equal_var=equal_variances).pvalue
            )


def test_tests_that_say_nothing_are_nan():
    for test in (welch, permutation_test):
        for ours, theirs in (([1], [2, 3]), ([1, 2], []), ([1, math.nan], [2, 3])):
            assert math.isnan(test(ours, theirs))
    assert math.isnan(welch([1, 1], [2, 2]))


@pytest.mark.parametrize(("n", "least"), [(3, 0.1), (4, 2 / 70), (5, 2 / 252)])
def test_the_smallest_p_of_a_permutation_test(n, least):
    apart = permutation_test(range(n), range(100, 100 + n))
    assert apart == pytest.approx(least)
    assert smallest_p(n, n) == pytest.approx(least)
    assert permutation_test([1.0] * n, [1.0] * n) == 1
    score = 100 * 350 / 408  # whose means differ in the last bit
    assert permutation_test([score] * 2, [score] * n) == 1


@settings(deadline=None, max_examples=60)
@given(ACCURACIES, ACCURACIES)
def test_permutation_counts_every_split_with_its_ties(ours, theirs):
    expected = two_sided(every_relabelling([(ours, theirs)]))
    assert permutation_test(percent(ours), percent(theirs)) == pytest.approx(expected)
    assert expected >= smallest_p(len(ours), len(theirs)) - 1e-12


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(ACCURACIES, ACCURACIES), min_size=1, max_size=2))
def test_the_stratified_permutation_test_counts_every_relabelling(tasks):
    found = stratified_permutation_test([(percent(ours), percent(theirs)) for ours, theirs in tasks])
    assert found.drawn is None
    assert found.p == pytest.approx(two_sided(every_relabelling(tasks)))


def test_labels_change_places_within_tasks_only():
    """Ours is ahead by 1 on an easy and a hard task: by pooling all runs the tasks' difference would hide it."""
    tasks = [([91, 91.1, 91.2], [90, 90.1, 90.2]), ([51, 51.1, 51.2], [50, 50.1, 50.2])]
    assert mean_difference(tasks) == pytest.approx(1)
    assert stratified_permutation_test(tasks).p == pytest.approx(2 / 20**2)
    pooled = [[value for task in tasks for value in task[arm]] for arm in (0, 1)]
    assert permutation_test(*pooled) > 0.5


def test_too_many_relabellings_are_drawn_at_random_repeatably_and_said_to_be():
    rng = np.random.default_rng(3)
    tasks = [(rng.normal(0.7, 1, 5).tolist(), rng.normal(0, 1, 5).tolist()) for _ in range(3)]
    drawn = stratified_permutation_test(tasks)
    assert drawn == stratified_permutation_test(tasks)
    assert drawn.drawn == RANDOM_RELABELLINGS
    # The exact p, the first task's splits in turn: 252^3 sums.
    first, second, third = (np.array([float(x) for x in every_relabelling([task])]) for task in tasks)
    sums = np.sort(np.add.outer(second, third).ravel())
    observed = first[0] + second[0] + third[0]
    above = sum(len(sums) - np.searchsorted(sums, observed - x - 1e-12) for x in first)
    below = sum(np.searchsorted(sums, observed - x + 1e-12) for x in first)
    exact = 2 * min(above, below) / 252**3
    assert 0.005 < exact < 0.5
    assert drawn.p == pytest.approx(exact, abs=4 * 2 * math.sqrt(exact / 2 / RANDOM_RELABELLINGS))
    apart = [(list(range(100, 105)), list(range(5)))] * 8
    assert stratified_permutation_test(apart).p == pytest.approx(2 / (RANDOM_RELABELLINGS + 1))  # never 0


def test_undefined_values_have_no_stratified_p():
    assert math.isnan(stratified_permutation_test([]).p)
    assert math.isnan(stratified_permutation_test([([1, math.nan], [2, 3])]).p)
    assert math.isnan(mean_difference_interval([([1, math.nan], [2, 3])]).value)


def test_hedges_g_by_hand():
    """Means 2 and 4, pooled SD 1, f = 4: d = -2, J = Gamma(2) / (sqrt(2) Gamma(1.5)) = 0.79788."""
    effect = hedges_g([1, 2, 3], [3, 4, 5])
    unbias = 1 / (math.sqrt(2) * math.sqrt(math.pi) / 2)
    assert unbias == pytest.approx(1 - 3 / (4 * 4 - 1), abs=0.003)  # Hedges' approximation
    assert effect.value == pytest.approx(-2 * unbias)
    t, root = -2 * math.sqrt(1.5), math.sqrt(1.5)
    assert stats.nct.cdf(t, 4, effect.low / unbias * root) == pytest.approx(0.975, abs=1e-5)
    assert stats.nct.cdf(t, 4, effect.high / unbias * root) == pytest.approx(0.025, abs=1e-5)


@pytest.mark.filterwarnings("ignore:Precision loss")
@settings(deadline=None, max_examples=60)
@given(ACCURACIES, ACCURACIES)
def test_hedges_interval_excludes_zero_exactly_if_the_t_test_is_significant(ours, theirs):
    effect = hedges_g(percent(ours), percent(theirs))
    no_spread = len(set(ours)) == len(set(theirs)) == 1
    p = math.nan if no_spread else stats.ttest_ind(percent(ours), percent(theirs)).pvalue
    assert math.isnan(effect.value) == math.isnan(p)
    if not math.isnan(effect.low) and abs(p - 0.05) > 1e-4:
        assert (effect.low > 0 or effect.high < 0) == (p < 0.05)
    mirrored = hedges_g(percent(theirs), percent(ours))
    assert (-mirrored.value, -mirrored.high, -mirrored.low) == pytest.approx(effect, abs=1e-5, nan_ok=True)


def test_hedges_g_without_spread_or_seeds_is_nan():
    for ours, theirs in (([1, 1], [2, 2]), ([1], [2, 3]), ([1, math.nan], [2, 3])):
        assert all(math.isnan(number) for number in hedges_g(ours, theirs))
    next_to_none = hedges_g([0, 1e-9, 0], [1, 1, 1])
    assert next_to_none.value < -1e8
    assert math.isnan(next_to_none.low)


def test_pooled_sd_weighs_variances_by_degrees_of_freedom():
    assert pooled_sd([[1, 2, 3], [0, 4], [7]]) == pytest.approx(math.sqrt((2 * 1 + 1 * 8) / 3))
    assert math.isnan(pooled_sd([[1], []]))


@pytest.mark.parametrize(("n", "d"), [(5, 2.02), (20, 0.91), (64, 0.50)])
def test_the_detectable_effect_of_published_tables(n, d):
    """n = 64 an arm for d = 0.5, power .8: Cohen (1992), Table 2."""
    assert detectable_effect(n) == pytest.approx(d, abs=0.005)
    assert detectable_difference(1.5, n) == pytest.approx(1.5 * d, abs=0.01)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 3), (3, 5), (10, 4)])
def test_the_detectable_effect_is_found_with_power_80_percent(n, m):
    critical, shift = stats.t.ppf(0.975, n + m - 2), detectable_effect(n, m) * math.sqrt(n * m / (n + m))
    rng = np.random.default_rng(0)
    t = (rng.standard_normal(400_000) + shift) / np.sqrt(rng.chisquare(n + m - 2, 400_000) / (n + m - 2))
    assert np.mean(np.abs(t) > critical) == pytest.approx(0.8, abs=0.004)
    assert math.isnan(detectable_effect(1, m))


def test_expected_maximum():
    """k = 2: 1/sqrt(pi); k = 3: 1.5/sqrt(pi); IsoBN's 18 configurations against 6 are worth 0.55 SD."""
    assert [expected_maximum(k) for k in (1, 2, 3)] == pytest.approx(
        [0, 1 / math.sqrt(math.pi), 1.5 / math.sqrt(math.pi)], abs=1e-9
    )
    assert expected_maximum(10) == pytest.approx(1.53875, abs=1e-5)  # Harter's (1961) tables
    assert expected_maximum(18) - expected_maximum(6) == pytest.approx(0.55, abs=0.005)


def test_probability_of_improvement_counts_ties_half():
    one, other = ([1, 2, 3], [2, 2, 0]), ([5, 5], [1, 2])
    # Of 9 pairs: 1 wins once; 2 wins once and ties twice; 3 wins three times.
    by_hand = (1 + 1 + 2 / 2 + 3) / 9
    assert by_hand == pytest.approx(stats.mannwhitneyu(*one).statistic / 9)
    assert probability_of_improvement([one]).value == pytest.approx(by_hand)
    both = probability_of_improvement([one, other])
    assert both.value == pytest.approx((by_hand + 1) / 2)
    assert both.low < both.value < both.high <= 1
    swapped = probability_of_improvement([(theirs, ours) for ours, theirs in (one, other)])
    assert swapped.value == pytest.approx(1 - both.value)


def test_bootstrap_intervals_are_scipys_of_the_same_random_numbers():
    tasks = [([70.0, 72.5, 71.0], [69.0, 73.0, 70.0, 71.5]), ([50.0, 52.0], [51.0, 50.5])]

    def difference(a, b, c, d, axis):
        return (a.mean(axis) - b.mean(axis) + c.mean(axis) - d.mean(axis)) / 2

    arms = [arm for arms in tasks for arm in arms]
    rng = np.random.default_rng(0)
    scipys = stats.bootstrap(arms, difference, n_resamples=1_999, method="percentile", rng=rng).confidence_interval
    assert mean_difference_interval(tasks)[1:] == pytest.approx((scipys.low, scipys.high))


def test_no_bootstrap_interval_of_one_seed_or_of_what_resampling_does_not_change():
    assert mean_difference_interval([([1], [2, 3])]) == pytest.approx((-1.5, math.nan, math.nan), nan_ok=True)
    apart = probability_of_improvement([([5, 6], [1, 2])])
    assert apart == pytest.approx((1, math.nan, math.nan), nan_ok=True)


def test_bootstrap_coverage_by_simulation():
    """Normal scores, so many tasks that the interval is normal: its error is estimated with divisor n."""
    assert [round(bootstrap_coverage(n), 3) for n in (3, 5)] == [0.890, 0.920]
    rng = np.random.default_rng(0)
    arms = rng.standard_normal((4_000, 2, 40, 3))  # [studies, arms, tasks, seeds]
    difference = (arms[:, 0].mean(-1) - arms[:, 1].mean(-1)).mean(-1)
    error = np.sqrt((arms.var(-1) / 3).sum((1, 2))) / 40
    assert np.mean(np.abs(difference) < 1.96 * error) == pytest.approx(bootstrap_coverage(3), abs=0.02)
