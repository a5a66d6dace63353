"""What the papers' printed scores, tests and times can and can't be, by computation (experiments/*/errata.md)."""

import itertools
import math

import numpy as np
import pytest
from helpers import assert_contains, list_printed_cells
from scipy import stats

from isobench.papers import published

# Dev sets: examples, and how many have the most frequent class.
SIZES = {"sst2": 872, "mrpc": 408, "rte": 277, "wnli": 71, "qnli": 5463, "mnli": 9815, "mnli-mm": 9832}
MAJORITY = {"mrpc": 279, "rte": 146, "wnli": 40}


def table(paper, number):
    return published.load_tables(paper)[f"table{number}"]


def size(content, column):
    about = content.columns[column]
    return SIZES["mnli-mm" if about.split else about.task]


def attainable(value, size, truncated=False):
    digits = len(str(value).partition(".")[2])
    less = 0.5 * 10.0**-digits - 1e-9 if truncated else 0
    return any(f"{100 * k / size - less:.{digits}f}" == str(value) for k in near(value, size))


def near(value, size):
    count = value * size / 100
    return range(max(0, math.floor(count) - 2), min(size, math.ceil(count) + 2) + 1)


def test_one_predicted_class_scores_what_spectrum_control_prints():
    positive, everyone = MAJORITY["mrpc"], SIZES["mrpc"]
    constant = {"MRPC": 2 * positive / (positive + everyone)}  # F1 of all positive
    constant |= {name: MAJORITY[name.lower()] / SIZES[name.lower()] for name in ("RTE", "WNLI")}
    assert [f"{100 * constant[name]:.2f}" for name in ("MRPC", "RTE", "WNLI")] == ["81.22", "52.71", "56.34"]
    found = []
    for *where, column, (mean, sd) in list_printed_cells("isotropy_calibration", "table1"):
        if not sd:  # 0, or none printed
            found.append((*where, column))
            assert where[1].startswith("spectrum"), where
            assert str(mean) == {"CoLA": "0", "STS-B": "NaN"}.get(column, f"{100 * constant.get(column, 0):.2f}")
    assert len(found) == 6 + 6 + 6 + 3 + 1


def three(mean, sd, size, ddof):
    width = math.ceil(1.2 * (sd + 0.01) * size / 100) + 1
    for total in range(math.floor(0.03 * size * (mean - 0.01)), math.ceil(0.03 * size * (mean + 0.01)) + 1):
        if abs(100 * total / (3 * size) - mean) <= 0.0101:
            a = np.arange(total // 3 - width, total // 3 + width + 1)
            x = np.stack(np.broadcast_arrays(a[:, None], a, total - a[:, None] - a)) * 100 / size
            if (np.abs(x.std(0, ddof=ddof) - sd) <= 0.0101).any():
                return True
    return False


@pytest.mark.parametrize("column", ["RTE", "WNLI", "SST-2"])
def test_three_accuracies_have_the_printed_mean_and_sample_deviation(column):
    content = table("isotropy_calibration", 1)
    population = 0
    for *where, (mean, sd) in list_printed_cells("isotropy_calibration", "table1", column):
        assert three(mean, sd, size(content, column), 1), where
        population += three(mean, sd, size(content, column), 0)
    assert population < 13  # divided by 3 it would not fit


def five(values, size, ddof):
    mean, sd, median, most = values
    width = math.ceil(5 * sd * size / 100) + 4
    for c, e in itertools.product(near(median, size), near(most, size)):
        if f"{100 * c / size:.1f}" == str(median) and f"{100 * e / size:.1f}" == str(most):
            a = np.arange(c - width, c + 1)
            grid = np.broadcast_arrays(a[:, None, None], a[None, :, None], c, np.arange(c, e + 1), e)
            x = np.stack(grid) * 100 / size
            close = (np.abs(x.mean(0) - mean) <= 0.05) & (np.abs(x.std(0, ddof=ddof) - sd) <= 0.05)
            if close.any():
                return True
    return False


def test_the_greatest_deviations_of_the_impossible_cell():
    median, most = 205, 207
    assert (f"{100 * median / 277:.1f}", f"{100 * most / 277:.1f}") == ("74.0", "74.7")
    low = np.arange(median - 40, median + 1)
    grid = np.broadcast_arrays(low[:, None, None], low[None, :, None], median, np.arange(median, most + 1), most)
    x = np.stack(grid) * 100 / 277
    fits = np.abs(x.mean(0) - 73.7) <= 0.05
    population, sample = (np.unique(x.std(0, ddof=ddof)[fits].round(3)) for ddof in (0, 1))
    assert population[-1] == 1.339
    assert sample[-2:].tolist() == [1.336, 1.497]


@pytest.mark.parametrize("column", ["RTE", "SST-2"])
def test_five_accuracies_have_the_printed_mean_deviation_median_and_maximum(column):
    content = table("task_adaptation", 1)
    neither = {("bert-large-wwm", "minmax", "RTE")}
    for ddof, exceptions in ((0, neither), (1, neither | {("bert-base-uncased", "l2", "RTE")})):
        misfits = {
            (*where, name)
            for *where, name, values in list_printed_cells("task_adaptation", "table1", column)
            if not five(values, size(content, column), ddof)
        }
        assert misfits == {key for key in exceptions if key[2] == column}


def test_task_adaptations_mrpc_is_no_accuracy_and_may_be_f1():
    misses = {
        (number, column, str(value), attainable(value, size(content, column), truncated=True))
        for number, content in ((number, table("task_adaptation", number)) for number in (1, 2))
        for *_, column, values in list_printed_cells("task_adaptation", f"table{number}")
        for value in values[-2:]
        if not attainable(value, size(content, column))
    }
    assert {miss for miss in misses if miss[1] != "MRPC"} == {(2, "MNLI-m", "84.05", True)}
    assert {miss[2] for miss in misses if not miss[3]} == {"88.1", "88.6", "88.8", "89.1", "89.3"}
    positive, n = MAJORITY["mrpc"], SIZES["mrpc"]
    true, false = np.meshgrid(np.arange(positive + 1), np.arange(n - positive + 1))
    f1 = {f"{100 * score:.1f}" for score in np.unique(2 * true / (positive + true + false))}
    printed = [values[-2:] for *_, values in list_printed_cells("task_adaptation", "table1", "MRPC")]
    assert {str(value) for values in printed for value in values} <= f1
    assert {f"{tenths / 10:.1f}" for tenths in range(800, 950)} <= f1  # as is anything else, so that proves little


def test_isobns_accuracies_are_truncated():
    content = table("isobn", 1)
    found = [
        [attainable(median, size(content, column), truncated) for truncated in (True, False)]
        for *_, column, (median, _) in list_printed_cells("isobn", "table1", "MNLI", "QNLI", "RTE", "SST-2", "MRPC")
    ]
    assert np.sum(found, 0).tolist() == [20, 13]


def differences(paper, seeds, population=False):
    """(encoder, row, column) -> (difference to plain, two-sided p of Student's t, of Welch's)."""
    content, found = table(paper, 1), {}
    factor = math.sqrt(seeds / (seeds - 1)) if population else 1  # printed deviations may divide by the seeds
    for encoder, row, column, (mean, sd, *_) in list_printed_cells(paper, "table1"):
        plain = content.cells[encoder]["plain"][column]
        if row != "plain" and sd is not None:
            both = (mean, sd * factor, seeds, plain[0], plain[1] * factor, seeds)
            equal, unequal = (stats.ttest_ind_from_stats(*both, equal_var=flag).pvalue for flag in (True, False))
            found[encoder, row, column] = (mean - plain[0], equal, unequal)
    return found


def test_the_stars_are_those_of_the_text_not_of_the_table():
    found = differences("isotropy_calibration", 3)
    better = {key for key, (difference, p, _) in found.items() if difference > 0 and p < 0.05}
    worse = {key for key, (difference, p, _) in found.items() if difference < 0 and p < 0.05}
    text = {("roberta-base", "cosreg", "MNLI-mm"), ("roberta-base", "spectrum_exp", "WNLI")}
    assert better == text
    printed = {
        (encoder, row, column)
        for encoder, rows in table("isotropy_calibration", 1).significant.items()
        for row, columns in rows.items()
        for column in columns
    }
    assert printed == {("roberta-base", "cosreg", "MNLI-mm"), ("roberta-base", "spectrum_pol", "WNLI")}
    p = [round(found["roberta-base", f"spectrum_{kind}", "WNLI"][1], 3) for kind in ("exp", "pol")]
    assert p == [0.016, 0.054]
    assert (len(found), len(better), len(worse)) == (88, 2, 14)
    zeros = {(e, row) for e, row, column, (_, sd) in list_printed_cells("isotropy_calibration", "table1")
             if column == "CoLA" and sd is None}  # fmt: skip
    plain = [table("isotropy_calibration", 1).cells[encoder]["plain"]["CoLA"] for encoder, _ in zeros]
    lost = [stats.ttest_ind_from_stats(0, 0, 3, mean, sd, 3).pvalue < 0.05 for mean, sd in plain]
    assert (len(found) + len(zeros), len(worse) + sum(lost)) == (94, 20)
    assert min(found[key][2] for key in text) > 0.05  # Welch's test keeps neither
    one_sided = {key for key, (difference, p, _) in found.items() if difference > 0 and p < 0.10}
    assert one_sided - text == {("bert-base-cased", "cosreg", "QNLI"), ("roberta-base", "spectrum_pol", "WNLI")}


def test_task_adaptations_differences():
    found = differences("task_adaptation", 5, population=True)
    losses = {("bert-large-wwm", "z", "SST-2"), ("bert-large-wwm", "minmax", "SST-2")}
    for test in (1, 2):  # Student's, Welch's
        assert {key for key in found if found[key][test] < 0.05} == losses
    gains = {key: p for key, (difference, p, _) in found.items() if difference > 0}
    nearest = min(gains, key=gains.get)
    assert nearest == ("bert-base-uncased", "l2", "RTE")
    assert [f"{p:.3f}" for p in found[nearest][1:]] == ["0.064", "0.078"]
    uncorrected = differences("task_adaptation", 5)
    assert {key for key in uncorrected if uncorrected[key][1] < 0.05} == losses | {nearest}
    assert f"{uncorrected[nearest][1]:.3f}" == "0.043"
    assert len(found) == 24
    assert min(p for _, p, _ in found.values()) * 24 > 0.05
    assert sum(difference < 0 for difference, *_ in found.values()) == 5
    assert f"{found['bert-base-uncased', 'z', 'RTE'][0]:.1f}" == "-1.7"
    assert all(
        own[0] < 0 for (encoder, _, task), own in found.items() if (encoder[:10], task) == ("bert-large", "SST-2")
    )


def test_what_the_adaptation_paper_says(papers):
    """Besides what claims quote, which tests/report/test_claims.py finds in the text."""
    assert_contains(
        " ".join((papers / "efficient_task_adaptation.txt").read_text().split()),
        "only boosts model performance on some datasets while do not work or even hurt the performance on others",
        "Other hyper-parameters are same as pre-training.",
        "it first calculates the average gradient norm of each coordinate in the batch",
        "It can be solved with a more careful selection of ϵ",
        "in all datasets, the variances of different dimensions are quite different, and large variances do not "
        "correspond to important dimensions generally",
    )


def test_l2_gains_little_less_with_bert_large():
    cells = table("task_adaptation", 1).cells
    gains = {
        encoder: {column: round(rows["l2"][column][0] - rows["plain"][column][0], 2) for column in rows["l2"]}
        for encoder, rows in cells.items()
    }
    means = {encoder: round(sum(of_encoder.values()) / 3, 2) for encoder, of_encoder in gains.items()}
    assert means == {"bert-base-uncased": 0.70, "bert-large-wwm": 0.50}
    assert (gains["bert-large-wwm"]["RTE"], gains["bert-base-uncased"]["RTE"]) == (1.4, 1.3)
