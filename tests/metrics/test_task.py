"""Task metrics against their definitions, counted by hand."""

import math

import numpy as np
import pytest

from isobench.metrics.task import METRIC_FUNCTIONS, evaluate_predictions, is_constant, nan_to_zero

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
