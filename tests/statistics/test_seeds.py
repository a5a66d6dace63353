"""Statistics of few seeds against published tables, worked examples and brute force."""

import math
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from isobench.statistics.seeds import Arm, compare_runs, count_trials, expected_maximum, flip_signs, hedges_g, holm

PAGE = Path(__file__).parents[2] / "docs" / "development" / "statistics.md"
# Accuracies of 408 examples, in percent: ties are common, and their differences are not exact in binary.
ACCURACIES = st.lists(st.integers(350, 358), min_size=2, max_size=4)


def percent(correct_examples):
    return [100 * count / 408 for count in correct_examples]


def arm(values, seeds=None):
    return Arm(list(values), list(range(len(values))) if seeds is None else seeds)


def unpaired(ours, theirs):
    """Two methods that share no seed."""
    return arm(ours), arm(theirs, [100 + number for number in range(len(theirs))])


def test_an_undefined_p_is_in_no_family():
    adjusted = holm([float("nan"), 0.01, 0.2])
    assert (math.isnan(adjusted[0]), adjusted[1:]) == (True, [0.02, 0.2])


@settings(deadline=None, max_examples=60)
@given(ACCURACIES, ACCURACIES)
@pytest.mark.filterwarnings("ignore:Precision loss")
def test_shared_seeds_are_paired_and_others_are_not(ours, theirs):
    if len(set(ours)) > 1 or len(set(theirs)) > 1:
        found = compare_runs([unpaired(ours, theirs)])
        expected = stats.ttest_ind(ours, theirs, equal_var=False)
        assert (found.p, found.seeds) == (pytest.approx(expected.pvalue), 0)
        assert [found.low, found.high] == pytest.approx(list(expected.confidence_interval()))
    n = min(len(ours), len(theirs))
    ours, theirs = ours[:n], theirs[:n]
    found = compare_runs([(arm(ours[::-1], list(range(n))[::-1]), arm(theirs))])
    if len({a - b for a, b in zip(ours, theirs, strict=True)}) > 1:
        expected = stats.ttest_rel(ours, theirs)
        assert (found.p, found.seeds) == (pytest.approx(expected.pvalue), n)
        assert [found.low, found.high] == pytest.approx(list(expected.confidence_interval()))
        assert (found.low > 0 or found.high < 0) == (found.p < 0.05)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_the_exact_p_is_scipys(n):
    differences = np.random.default_rng(n).normal(0.5, 1, n)
    expected = stats.permutation_test((differences,), np.mean, permutation_type="samples").pvalue
    assert compare_runs([(arm(differences), arm(np.zeros(n)))]).p_exact == pytest.approx(expected)
    assert flip_signs([0.0] * n) == 1
    assert math.isnan(flip_signs([1.0] * 17))


def test_a_seed_counts_once_over_all_tasks():
    ours, theirs = [71.0, 72.5, 70.0, 73.0], [70.0, 71.0, 70.5, 71.0]
    once, twice = ([(arm(ours), arm(theirs))] * count for count in (1, 2))
    assert compare_runs(twice) == pytest.approx(compare_runs(once))
    other = (arm([50.0, 51.0, 52.0, 50.0]), arm([51.0, 50.0, 50.0, 50.0]))
    means = [statistics.fmean(pair) for pair in ((1.0, -1.0), (1.5, 1.0), (-0.5, 2.0), (2.0, 0.0))]
    found = compare_runs([*once, other])
    assert found.p == pytest.approx(stats.ttest_1samp(means, 0).pvalue)
    assert (found.value, found.seeds, found.freedom) == (statistics.fmean(means), 4, 3)


def test_a_seed_that_one_method_lacks_is_left_out_and_repeated_or_unknown_seeds_are_not_paired():
    ours, theirs = [71.0, 72.5, 70.0], [70.0, 71.0, 70.5, 90.0]
    assert compare_runs([(arm(ours), arm(theirs))]) == compare_runs([(arm(ours), arm(theirs[:3]))])
    welch = compare_runs([unpaired(ours, theirs)])
    for seeds in ([0, 0, 1], [None] * 3, [8, 9, 0]):
        assert compare_runs([(arm(ours, seeds), arm(theirs))]) == welch


def test_tasks_without_shared_seeds_add_their_variances():
    tasks = [([70.0, 72.5, 71.0], [69.0, 73.0, 70.0, 71.5]), ([50.0, 52.0], [51.0, 50.5])]
    parts = [np.var(values, ddof=1) / len(values) / 4 for pair in tasks for values in pair]
    sizes = [len(values) for pair in tasks for values in pair]
    freedom = sum(parts) ** 2 / sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    value = np.mean([np.mean(ours) - np.mean(theirs) for ours, theirs in tasks])
    found = compare_runs([unpaired(*pair) for pair in tasks])
    assert (found.value, found.freedom) == (pytest.approx(value), pytest.approx(freedom))
    assert found.p == pytest.approx(2 * stats.t.sf(abs(value) / math.sqrt(sum(parts)), freedom))


def test_no_test_of_one_seed_of_undefined_scores_or_without_spread():
    for ours, theirs in (([1.0], [2.0, 3.0]), ([1.0, 2.0], [0.5]), ([1.0, 1.0], [2.0, 2.0])):
        found = compare_runs([unpaired(ours, theirs)])
        assert math.isnan(found.p)
        assert math.isnan(found.low)
        assert found.value == pytest.approx(np.mean(ours) - np.mean(theirs))
        assert math.isnan(found.find_detectable())
    assert math.isnan(compare_runs([(arm([1.0, math.nan]), arm([2.0, 3.0]))]).value)
    score = 100 * 350 / 408  # of which every seed gains the same, but for rounding
    assert math.isnan(compare_runs([(arm([score + 0.1, score + 0.3]), arm([score, score + 0.2]))]).p)


def test_the_best_of_several_configurations_pays_for_each():
    assert [count_trials(10, 1, 0.5), count_trials(10, 1, -0.5), count_trials(1, 10, -0.5)] == [10, 1, 10]
    assert [count_trials(6, 6, 0.5), count_trials(6, 2, 0.5)] == [1, 6]
    rng, n, k = np.random.default_rng(0), 2_000, 10
    false = 0
    for _ in range(n):
        plain, best = rng.normal(size=5), max(rng.normal(size=(k, 5)), key=np.mean)
        test = compare_runs([(arm(best), arm(plain))])
        false += test.p * count_trials(k, 1, test.value) < 0.05
    assert false / n < 0.05


def draw_scores(rng, noise, n, is_paired):
    """Scores of ours and of theirs, [2, n], and the true difference; a collapse costs 20 standard deviations."""
    scores, shared = rng.normal(size=(2, n)), rng.normal(size=n) * is_paired
    chance = {"normal": (0.0, 0.0), "either collapses": (0.1, 0.1), "ours collapses": (0.1, 0.0)}[noise]
    collapsed = rng.random((2, n)) < np.array(chance)[:, None]
    return scores + shared - 20 * collapsed, -20 * (chance[0] - chance[1])


def simulate_coverage(noise, n, is_paired, studies):
    rng, held = np.random.default_rng([n, is_paired]), 0
    for _ in range(studies):
        (ours, theirs), truth = draw_scores(rng, noise, n, is_paired)
        test = compare_runs([(arm(ours), arm(theirs)) if is_paired else unpaired(ours, theirs)])
        held += test.low <= truth <= test.high
    return held / studies


@pytest.mark.slow
def test_the_page_says_how_often_the_intervals_hold_the_true_difference():
    rows = re.findall(r"^\| (normal|either collapses|ours collapses)[^|]*\|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 3
    for noise, cells in rows:
        printed = [float(cell.strip().rstrip("%")) for cell in cells.split("|")]
        found = [100 * simulate_coverage(noise, n, paired, 2_000) for paired in (True, False) for n in (3, 5, 10)]
        assert found == pytest.approx(printed, abs=2.5)
        if noise == "normal":
            assert found == pytest.approx([95] * 6, abs=2.5)


def test_hedges_g_by_hand():
    """Means 2 and 4, pooled SD 1, f = 4: d = -2, J = Gamma(2) / (sqrt(2) Gamma(1.5)) = 0.79788."""
    effect = hedges_g([1, 2, 3], [3, 4, 5])
    unbias = 1 / (math.sqrt(2) * math.sqrt(math.pi) / 2)
    assert unbias == pytest.approx(1 - 3 / (4 * 4 - 1), abs=0.003)  # Hedges' approximation
    assert effect.value == pytest.approx(-2 * unbias)
    t, root = -2 * math.sqrt(1.5), math.sqrt(1.5)
    assert stats.nct.cdf(t, 4, effect.low / unbias * root) == pytest.approx(0.975, abs=1e-5)
    assert stats.nct.cdf(t, 4, effect.high / unbias * root) == pytest.approx(0.025, abs=1e-5)
    for ours, theirs in (([1, 1], [2, 2]), ([1], [2, 3]), ([1, math.nan], [2, 3])):
        assert all(math.isnan(number) for number in hedges_g(ours, theirs))
    next_to_none = hedges_g([0, 1e-9, 0], [1, 1, 1])
    assert (next_to_none.value < -1e8, math.isnan(next_to_none.low)) == (True, True)


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


@pytest.mark.parametrize(("n", "tests", "d"), [(5, 1, 2.02), (5, 4, 2.64), (20, 1, 0.91), (64, 1, 0.50)])
def test_the_detectable_difference_of_published_tables(n, tests, d):
    """In standard deviations; n = 64 an arm for d = 0.5, power .8: Cohen (1992), Table 2."""
    scores = np.linspace(-1, 1, n) / np.std(np.linspace(-1, 1, n), ddof=1)
    assert compare_runs([unpaired(scores, scores)]).find_detectable(tests) == pytest.approx(d, abs=0.005)


def test_expected_maximum():
    """k = 2: 1/sqrt(pi); k = 3: 1.5/sqrt(pi)."""
    root = math.sqrt(math.pi)
    assert [expected_maximum(k) for k in (1, 2, 3)] == pytest.approx([0, 1 / root, 1.5 / root], abs=1e-9)
    assert expected_maximum(10) == pytest.approx(1.53875, abs=1e-5)  # Harter's (1961) tables
