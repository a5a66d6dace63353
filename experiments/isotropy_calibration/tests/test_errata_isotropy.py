"""What the printed isotropy figures can and can't be, by computation (experiments/isotropy_calibration/errata.md)."""

import math

import numpy as np
import pytest
from helpers import list_printed_cells
from scipy import stats


def rounding(value):
    digits = len(str(value).partition(".")[2].partition("e")[0]) + (4 if "e-4" in str(value) else 0)
    return 0.5 * 10.0**-digits


def bound(i1):
    return (1 - i1) / (2 * math.sqrt(i1))


def isotropies():
    """(table, encoder, row, task, (I1, its deviation), (I2, its deviation))."""
    for number in (2, 3, 4):
        cells = {tuple(where): cell for *where, cell in list_printed_cells("isotropy_calibration", f"table{number}")}
        for (encoder, row, column), cell in cells.items():
            if column.endswith("I1"):
                yield number, encoder, row, column[:-3], cell, cells[encoder, row, f"{column[:-1]}2"]


def test_the_bound_is_reached_and_never_passed():
    rng = np.random.default_rng(0)
    for _ in range(200):
        z = rng.gamma(rng.uniform(0.05, 5), size=rng.integers(2, 50)) + 1e-3
        assert z.std() / z.mean() <= bound(z.min() / z.max()) + 1e-12
    i1 = 0.91
    high = i1 / (1 + i1)  # share of directions at the maximum 1, the others at I1
    mean = high + (1 - high) * i1
    assert math.sqrt(high * (1 - mean) ** 2 + (1 - high) * (i1 - mean) ** 2) / mean == pytest.approx(bound(i1))
    assert 0.047 < bound(i1) < 0.048


def test_the_printed_pairs_are_impossible_as_defined():
    pairs, broken = set(), set()
    for *where, (i1, sd), (i2, _) in isotropies():
        pairs.add(tuple(where))
        least = i1 - rounding(i1) - 2 / math.sqrt(3) * (sd + rounding(sd or 0.01))
        if least > 0 and i2 - rounding(i2) > bound(least):
            broken.add(tuple(where))
    assert (len(pairs), len(broken)) == (135, 97)
    possible = pairs - broken
    assert {key for key in possible if not key[2].startswith("spectrum")} == {(4, "roberta-base", "cosreg", "QQP")}


def test_a_pair_follows_from_its_spread_over_random_directions():
    misfits = set()
    for number, encoder, row, task, (i1, _), (i2, _) in isotropies():
        d = {2: 1024, 3: 768, 4: 768}[number]
        reach = stats.norm.ppf((d - 0.375) / (d + 0.25)) * i2 / math.sqrt(d)
        if abs(i1 - (1 - reach) / (1 + reach)) > rounding(i1) + 0.012:
            misfits.add((number, encoder, row, task, str(i1), str(i2)))
    assert misfits == {
        (4, "roberta-base", "cosreg", "MNLI", "0.93", "0.93"),
        (4, "roberta-base", "cosreg", "QQP", "0.32", "0.39"),
        (4, "distilbert-base-cased", "cosreg", "QQP", "0.992", "0.39"),
    }


@pytest.mark.parametrize(("classes", "i1", "i2"), [(2, 0.914, 0.392), (3, 0.932, 0.318), (6, 0.949, 0.225)])
def test_a_head_near_its_start_gives_the_printed_pairs(classes, i1, i2):
    rng = np.random.default_rng(0)
    d, found, defined = 768, [], []
    for _ in range(4):
        w = rng.normal(0, 0.02, (classes, d))
        vectors = np.linalg.eigh(w.T @ w)[1]
        for directions, pairs, scale in ((vectors, found, math.sqrt(d)), (vectors.T, defined, 1)):
            z = np.exp(directions @ w.T).sum(1)
            pairs.append((z.min() / z.max(), scale * z.std() / z.mean()))
    mean = np.mean(found, 0)
    assert mean == pytest.approx((i1, i2), abs=0.012)
    assert mean[1] == pytest.approx(0.02 * math.sqrt(d / classes), rel=0.03)
    for number, _, row, task, (first, _), (second, _) in isotropies():
        if number == 4 and row == "plain" and {"MNLI": 3, "STS-B": 6}.get(task, 2) == classes:
            assert abs(first - mean[0]) < 0.015
            assert abs(second - mean[1]) < 0.02
    assert np.mean(defined, 0)[1] < 0.02  # the eigenvectors themselves, with 1/|V|: nothing like it


def test_a_collapsed_head_is_isotropic_by_these_measures():
    rng = np.random.default_rng(0)
    w = rng.normal(0, 0.02, (2, 768)) / 500
    directions = np.linalg.qr(rng.normal(size=(768, 768)))[0]
    z = np.exp(directions @ w.T).sum(1)
    assert f"{z.min() / z.max():.2f}" == "1.00"
    assert math.sqrt(768) * z.std() / z.mean() == pytest.approx(7e-4, abs=2e-4)


def test_a_deviation_is_impossible_for_numbers_of_at_most_1():
    impossible = {
        (encoder, row, task)
        for number, encoder, row, task, (i1, sd), _ in isotropies()
        if number == 4 and sd and sd - rounding(sd) > math.sqrt(3) * (1 - i1 + rounding(i1))
    }
    assert impossible == {("roberta-base", "spectrum_pol", "QQP")}


def test_spectrum_controls_printed_i2_rises_with_the_number_of_training_steps():
    examples = {"WNLI": 635, "RTE": 2490, "MRPC": 3668, "STS-B": 5749, "CoLA": 8551, "SST-2": 67349}
    examples |= {"QNLI": 104743, "QQP": 363846, "MNLI": 392702}
    steps = {task: math.ceil(n / 32) * (5 if task in ("MRPC", "WNLI") else 3) for task, n in examples.items()}
    found = {}
    for number, encoder, row, task, _, (i2, _) in isotropies():
        if number == 4 and row.startswith("spectrum"):
            found.setdefault((encoder, row), []).append((steps[task], float(i2)))
    tests = [stats.spearmanr(*zip(*pairs, strict=True)) for pairs in found.values()]
    assert len(tests) == 6
    assert min(test.statistic for test in tests) > 0.75
    assert max(test.pvalue for test in tests) < 0.02
