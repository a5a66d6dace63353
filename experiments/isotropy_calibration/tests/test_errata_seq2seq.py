"""What the isotropy-calibration paper leaves open of translation and summarisation, by computation (errata.md)."""

import math

import numpy as np
import pytest
from helpers import make_config
from scipy import stats

from isobench.papers import published

SIZES = {"wmt16_en_ro": 610_320, "wmt16_de_en": 4_548_885, "cnn_dailymail": 287_113}  # training examples
BART = {  # width, feed-forward width, layers of either side, vocabulary: of the released configurations
    "mbart-large": (1024, 4096, 12, 250_027),
    "bart-large": (1024, 4096, 12, 50_265),
    "bart-base": (768, 3072, 6, 50_265),
}


def cells(number):
    (found,) = published.load_tables("isotropy_calibration")[f"table{number}"].cells.values()
    return found


def rate(examples, minutes):
    return examples / 60 / (minutes + 0.5), examples / 60 / (minutes - 0.5)


def arithmetic(name, source, target):
    d, wide, layers, vocabulary = BART[name]
    attention, feed_forward = 4 * d * d, 2 * d * wide
    encoder = layers * (attention + feed_forward + 2 * d * source)
    decoder = layers * (2 * attention + feed_forward + 2 * d * (source + target))
    return source * encoder + target * (decoder + d * vocabulary)


def test_the_sizes_of_the_models_are_the_known_ones():
    for name, known in (("mbart-large", 610), ("bart-large", 406), ("bart-base", 139)):
        d, wide, layers, vocabulary = BART[name]
        matrices = layers * (12 * d * d + 4 * d * wide) + vocabulary * d
        assert matrices / 1e6 == pytest.approx(known, rel=0.01)


def test_the_times_do_not_tell_which_bart_it_is():
    articles = 20_000 / 60 / cells(3)["plain"]["20k Time"][0]
    pairs = 50_000 / 60 / cells(2)["plain"]["EN-RO 50k Time"][0]
    assert articles == pytest.approx(SIZES["cnn_dailymail"] / 60 / cells(3)["plain"]["Time"][0], rel=0.01)
    assert (round(articles, 1), round(pairs)) == (19.6, 93)
    ratios = {
        name: [
            articles * arithmetic(name, *article) / (pairs * arithmetic("mbart-large", *pair))
            for pair in ((30, 35), (40, 45), (80, 90))  # tokens: without padding, and with what random batches have
            for article in ((780, 75), (1024, 75), (1024, 128))
        ]
        for name in ("bart-large", "bart-base")
    }
    assert [f"{bound(ratios['bart-large']):.1f}" for bound in (min, max)] == ["0.6", "2.2"]
    assert [f"{bound(ratios['bart-base']):.1f}" for bound in (min, max)] == ["0.2", "0.7"]
    d, _, _, vocabulary = BART["mbart-large"]
    assert 40 < 100 * 45 * d * vocabulary / arithmetic("mbart-large", 40, 45) < 50


def test_the_isotropies_of_table_3_lean_to_the_smaller_bart():
    rng = np.random.default_rng(0)
    below = {}
    for d, expected in ((768, 0.944), (1024, 0.950)):
        z = rng.normal(size=(2000, d))
        z = 1 + 0.25 / math.sqrt(d) * (z - z.mean(1, keepdims=True)) / z.std(1, keepdims=True)
        i1 = z.min(1) / z.max(1)
        assert i1.mean() == pytest.approx(expected, abs=0.001)
        assert i1.std() == pytest.approx(0.004, abs=0.001)
        below[d] = np.mean(i1 < 0.945)
    assert below[768] > 0.45
    assert below[1024] < 0.1
    printed = [cells(3)[row][column][0] for row, column in (("plain", "I1"), ("plain", "20k I1"), ("flow", "20k I1"))]
    assert [float(value) for value in printed] == [0.95, 0.94, 0.94]


def test_de_en_was_not_trained_on_all_of_wmt16():
    plain = cells(2)["plain"]
    rates = [rate(50_000, plain["EN-RO 50k Time"][0]), rate(50_000, plain["DE-EN 50k Time"][0]),
             rate(SIZES["wmt16_en_ro"], plain["EN-RO Time"][0])]  # fmt: skip
    low, high = max(low for low, _ in rates), min(high for _, high in rates)
    assert 93 < low < high < 95  # every time of plain mBART but this one is of one rate
    minutes = plain["DE-EN Time"][0]
    assert 980_000 < low * 60 * (minutes - 0.5) < high * 60 * (minutes + 0.5) < 1_005_000
    assert SIZES["wmt16_de_en"] / 60 / high > 4.5 * minutes
    assert 980_000 < make_config("task=wmt16_de_en_1m").task.reduced < 1_005_000


def test_the_printed_rouge_l_is_of_the_whole_text():
    # R-1 and R-L of BART-large's paper and, both forms, on its card.
    of_sentences, of_text = (40.90 / 44.16, 40.04 / 42.95), 30.62 / 42.95
    for row, found in cells(5).items():
        for size in ("", "20k "):
            if f"{size}R-L" in found:
                share = found[f"{size}R-L"][0] / found[f"{size}R-1"][0]
                assert abs(share - of_text) < 0.04, row
                assert min(of_sentences) - share > 0.2, row


def test_the_printed_bleu_is_that_of_text_as_it_is():
    bleu = cells(2)["plain"]["EN-RO BLEU"][0]
    assert abs(bleu - 26.85) < 1 < abs(bleu - 37.1)


def test_no_calibration_is_better_than_plain_in_tables_2_and_5():
    gains, losses, number = [], [], 0
    for table, columns in ((2, ("EN-RO BLEU", "DE-EN BLEU", "EN-RO 50k BLEU", "DE-EN 50k BLEU")),
                           (5, ("R-1", "R-2", "R-L", "20k R-1", "20k R-2", "20k R-L"))):  # fmt: skip
        for row, found in cells(table).items():
            for column in columns:
                if row != "plain" and column in found:
                    number += 1
                    both = (*found[column], 3, *cells(table)["plain"][column], 3)
                    p = stats.ttest_ind_from_stats(*both).pvalue
                    if p < 0.05:
                        (gains if both[0] > both[3] else losses).append((row, column))
    assert (number, gains) == (20, [])
    assert {row for row, _ in losses} == {"spectrum_pol", "spectrum_exp"}
    assert len(losses) == 10
