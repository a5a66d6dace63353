"""Task metrics as GLUE defines them, computed by scikit-learn and scipy."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats
from sklearn import metrics as sk

# Each metric takes (labels [N], predictions [N]) and returns a number, the best being 1.
METRIC_FUNCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda y, p: float(sk.accuracy_score(y, p)),
    "f1": lambda y, p: float(sk.f1_score(y, p, zero_division=0)),
    "accuracy_f1": lambda y, p: (METRIC_FUNCTIONS["accuracy"](y, p) + METRIC_FUNCTIONS["f1"](y, p)) / 2,
    "matthews": lambda y, p: _compute_matthews(y, p),
    "pearson": lambda y, p: _correlate(stats.pearsonr, y, p),
    "spearman": lambda y, p: _correlate(stats.spearmanr, y, p),
    # y: predicted tokens of each window. p: its loss in nats. The result is the geometric mean of the tokens'
    # probabilities, 1 / perplexity.
    "token_probability": lambda y, p: math.exp(-float(p.sum() / y.sum())),
    "pearson_spearman": lambda y, p: (METRIC_FUNCTIONS["pearson"](y, p) + METRIC_FUNCTIONS["spearman"](y, p)) / 2,
}


def evaluate_predictions(names: list[str], labels: Any, predictions: Any) -> dict[str, float]:
    """Compute the named metrics (keys of METRIC_FUNCTIONS) of predictions [N] for the true classes or scores, [N].

    A correlation with a constant is NaN; F1 and Matthews' correlation are 0 where they are undefined, as in GLUE.

    Raises:
        ValueError: labels and predictions have other shapes.
    """
    arrays = np.asarray(labels), np.asarray(predictions)
    if arrays[0].ndim != 1 or arrays[0].shape != arrays[1].shape:
        raise ValueError(f"labels and predictions must both be [N], not {arrays[0].shape} and {arrays[1].shape}")
    if any(map(np.iscomplexobj, arrays)):
        raise ValueError("labels and predictions must be real numbers or texts, not complex numbers")
    return {name: METRIC_FUNCTIONS[name](*arrays) for name in names}


def nan_to_zero(value: float) -> float:
    """Replace NaN by 0: when runs are selected and compared, an undefined metric counts as 0 and not as missing."""
    return 0.0 if math.isnan(value) else value


def is_constant(predictions: np.ndarray | Sequence[str]) -> bool:
    """Return True if a model predicts the same for all examples, of which there are at least two."""
    return len(predictions) > 1 and all(prediction == predictions[0] for prediction in predictions)


def _correlate(function: Callable[..., Any], labels: np.ndarray, predictions: np.ndarray) -> float:
    if len(labels) < 2:
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns of constant input; the NaN that it returns is enough
        return float(function(labels.astype(np.float64), predictions.astype(np.float64)).statistic)


def _compute_matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns if all labels and predictions are one class
        return float(sk.matthews_corrcoef(labels, predictions))
