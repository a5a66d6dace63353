"""Task metrics, and those of generated texts, against their definitions and counts made by hand."""

import math
import warnings

import numpy as np
import pytest

from isobench.kinds.generation.scores import METRIC_NAMES as TEXT_METRICS
from isobench.kinds.generation.scores import evaluate_texts
from isobench.metrics.task import METRIC_FUNCTIONS, evaluate_predictions, is_constant, nan_to_zero

# 1- to 4-grams of the hypothesis that are in the reference (clipped): 5 of 7, 3 of 6, 1 of 5, 0 of 4.
REFERENCE, HYPOTHESIS = "the cat sat on the mat today", "the cat the cat on the mat"


def one(name, reference, hypothesis):
    return evaluate_texts([name], [reference], [hypothesis])[name]


def test_bleu_clips_counts_and_halves_what_it_did_not_find():
    product = 5 / 7 * 3 / 6 * 1 / 5 * 1 / (2 * 4)
    assert one("bleu", REFERENCE, HYPOTHESIS) == pytest.approx(product ** (1 / 4))


def test_bleu_is_of_the_corpus_and_penalises_brevity():
    references = [REFERENCE, "one two three four five six"]
    hypotheses = [HYPOTHESIS, "one two three four"]
    product = (5 + 4) / (7 + 4) * (3 + 3) / (6 + 3) * (1 + 2) / (5 + 2) * (0 + 1) / (4 + 1)
    expected = math.exp(1 - (7 + 6) / (7 + 4)) * product ** (1 / 4)
    assert evaluate_texts(["bleu"], references, hypotheses)["bleu"] == pytest.approx(expected)


def test_bleu_of_languages_without_spaces_counts_characters():
    references, hypotheses = ["我喜欢在公园里散步。"], ["我喜欢在公园散步。"]  # one of nine characters is missing
    by_language = [
        evaluate_texts(["bleu"], references, hypotheses, language)["bleu"] for language in ("zh", "ja", "de")
    ]
    assert by_language[0] == by_language[1] > 0.5
    assert by_language[2] == 0


def test_chrf_weighs_recall_twice():
    # abd for abcd: 1-grams 3 of 3 and 4, 2-grams 1 of 2 and 3, 3-grams 0 of 1 and 2; longer ones are not in both
    precision, recall = (3 / 3 + 1 / 2 + 0) / 3, (3 / 4 + 1 / 3 + 0) / 3
    assert one("chrf", "abcd", "abd") == pytest.approx(5 * precision * recall / (4 * precision + recall))


def test_rouge_counts_stems():
    # 6 and 5 words; in common 5 words (cats is cat), 1 pair (the cat), and the sequence "the cat on mat"
    references, hypotheses = ["The cats sat on the mat.", "same"], ["the cat on mat sat", "same"]
    result = evaluate_texts(["rouge1", "rouge2", "rougeL"], references, hypotheses)
    assert result["rouge1"] == pytest.approx((2 * 5 / (6 + 5) + 1) / 2)
    assert result["rouge2"] == pytest.approx((2 * 1 / (5 + 4) + 0) / 2)  # one word has no pair
    assert result["rougeL"] == pytest.approx((2 * 4 / (6 + 5) + 1) / 2)


def test_rouge_l_is_of_the_text_not_of_its_lines():
    assert one("rougeL", "a b\nc d", "c d\na b") == pytest.approx(2 / 4)  # by lines (Lsum) all would be found


@pytest.mark.parametrize(
    ("references", "hypotheses"),
    [([""], [""]), (["a b"], [""]), ([""], ["a b"]), (["", ""], ["", ""]), (["..."], ["!"]), (["x", ""], ["", "x"])],
)
def test_empty_texts_score_nothing(references, hypotheses):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = evaluate_texts(TEXT_METRICS, references, hypotheses)
    assert result == dict.fromkeys(TEXT_METRICS, 0)


LABELS = np.array([1, 1, 1, 0, 0, 1, 0, 1])
PREDICTIONS = np.array([1, 0, 1, 0, 1, 1, 0, 1])  # tp 4, fn 1, fp 1, tn 2


def test_binary_metrics():
    result = evaluate_predictions(["accuracy", "f1", "accuracy_f1", "matthews"], LABELS, PREDICTIONS)
    assert result["accuracy"] == 6 / 8
    assert result["f1"] == pytest.approx(2 * 4 / (2 * 4 + 1 + 1))
    assert result["accuracy_f1"] == pytest.approx((6 / 8 + 0.8) / 2)
    assert result["matthews"] == pytest.approx((4 * 2 - 1 * 1) / math.sqrt(5 * 5 * 3 * 3))


def test_correlations():
    y, p = np.array([1.0, 2, 3, 5]), np.array([1.0, 3, 2, 9])
    dy, dp = y - y.mean(), p - p.mean()
    pearson = (dy @ dp) / math.sqrt((dy @ dy) * (dp @ dp))
    spearman = 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15)
    result = evaluate_predictions(["pearson", "spearman", "pearson_spearman"], y, p)
    assert result["pearson"] == pytest.approx(pearson)
    assert result["spearman"] == pytest.approx(spearman)
    assert result["pearson_spearman"] == pytest.approx((pearson + spearman) / 2)


def test_a_constant_predictor_is_undefined_scored_by_rule_and_named():
    y, p = np.array([1.0, 2, 3]), np.ones(3)
    assert math.isnan(METRIC_FUNCTIONS["pearson"](y, p))
    assert nan_to_zero(METRIC_FUNCTIONS["pearson"](y, p)) == 0
    assert nan_to_zero(0.4) == 0.4
    assert is_constant(p)
    assert not is_constant(np.array([0, 1]))
    assert METRIC_FUNCTIONS["matthews"](LABELS, np.ones_like(LABELS)) == 0
