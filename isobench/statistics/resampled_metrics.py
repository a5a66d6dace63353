"""Compute a task's metrics on bootstrap samples of its examples, for several runs at once.

A bootstrap sample is given by its multiplicities: how often it has each example. Most metrics follow from sums
weighted by multiplicities, which are matrix products. `isobench.metrics.task` defines the metrics; the tests compare
these functions with it. It is not imported, because reports are made without torch.
"""

from collections.abc import Callable

import numpy as np

CHUNK = 100  # bootstrap samples that are handled at a time, to save memory


def resample_metric(
    metric: str, labels: np.ndarray, predictions: np.ndarray, multiplicities: np.ndarray
) -> np.ndarray:
    """Compute a metric of every run on every bootstrap sample; NaN where it is undefined.

    Args:
        metric: one of ``RESAMPLED_METRICS``.
        labels: true classes or scores, [examples].
        predictions: predicted classes or scores, [runs, examples].
        multiplicities: how often each sample has each example, [samples, examples].

    Returns:
        [samples, runs], float64.
    """
    function = RESAMPLED_METRICS[metric]
    chunks = (multiplicities[start : start + CHUNK] for start in range(0, len(multiplicities), CHUNK))
    return np.concatenate([function(labels, predictions, chunk.astype(np.float64)) for chunk in chunks])


def compute_accuracy(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute the share of examples whose predicted class is the true one."""
    return weights @ (predictions == labels).T.astype(np.float64) / weights.sum(1, keepdims=True)


def compute_f1(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute the F1 score of class 1; 0 if no example has it or is predicted to have it."""
    positive, predicted = labels == 1, predictions == 1
    hits = weights @ (positive & predicted).T.astype(np.float64)
    total = weights @ predicted.T.astype(np.float64) + (weights @ positive.astype(np.float64))[:, None]
    return np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)


def compute_matthews(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute Matthews's correlation for any number of classes (Gorodkin 2004).

    It is 0 if all labels or all predictions of a sample are one class.
    """
    count = weights.sum(1, keepdims=True)
    correct = weights @ (predictions == labels).T.astype(np.float64)
    products, of_labels, of_predictions = np.zeros_like(correct), np.zeros_like(count), np.zeros_like(correct)
    for label in np.union1d(labels, predictions):
        true = (weights @ (labels == label).astype(np.float64))[:, None]
        predicted = weights @ (predictions == label).T.astype(np.float64)
        products += true * predicted
        of_labels += true**2
        of_predictions += predicted**2
    scale = np.sqrt((count**2 - of_labels) * (count**2 - of_predictions))
    return np.divide(correct * count - products, scale, out=np.zeros_like(correct), where=scale > 0)


def compute_pearson(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute Pearson's correlation; NaN if labels or predictions do not vary."""
    y, x = labels - labels.mean(), predictions - predictions.mean(1, keepdims=True)
    count = weights.sum(1, keepdims=True)
    mean_x, mean_y = weights @ x.T / count, (weights @ y)[:, None] / count
    covariance = weights @ (x * y).T / count - mean_x * mean_y
    variances = weights @ (x * x).T / count - mean_x**2, (weights @ (y * y))[:, None] / count - mean_y**2
    return divide_by_spread(covariance, *variances, (x * x).mean(1), (y * y).mean())


def compute_spearman(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute Spearman's correlation, with ranks among the examples of each sample; NaN if a side does not vary."""
    count = weights.sum(1, keepdims=True)
    y = rank_in_samples(labels, weights) - (count + 1) / 2  # less the mean rank
    weighted_y = weights * y
    variance_y = (weighted_y * y).sum(1)
    columns = []
    for run in predictions:
        x = rank_in_samples(run, weights) - (count + 1) / 2
        variance_x = np.einsum("sm,sm,sm->s", weights, x, x)
        columns.append(divide_by_spread((weighted_y * x).sum(1), variance_x, variance_y, 1.0, 1.0))
    return np.stack(columns, axis=1)


def rank_in_samples(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rank the values of each bootstrap sample from 1; equal values share the mean of their ranks.

    Args:
        values: [examples].
        weights: how often each sample has each example, [samples, examples].

    Returns:
        The rank of each example among a sample's, [samples, examples].
    """
    distinct, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(distinct)))
    totals = np.add.reduceat(weights[:, order], starts, axis=1)  # of each distinct value
    return (np.cumsum(totals, axis=1) - (totals - 1) / 2)[:, group]


def divide_by_spread(
    covariance: np.ndarray,
    variance_x: np.ndarray,
    variance_y: np.ndarray,
    scale_x: np.ndarray | float,
    scale_y: np.ndarray | float,
) -> np.ndarray:
    """Divide a covariance by both standard deviations; NaN where a variance is rounding compared with its scale."""
    varies = (variance_x > 1e-12 * scale_x) & (variance_y > 1e-12 * scale_y)
    product = np.sqrt(np.where(varies, variance_x * variance_y, np.nan))
    return np.clip(covariance / product, -1.0, 1.0)


def average_metrics(first: "Metric", second: "Metric") -> "Metric":
    """Return the metric that is the mean of two."""
    return lambda labels, predictions, weights: (
        (first(labels, predictions, weights) + second(labels, predictions, weights)) / 2
    )


Metric = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
# Each takes labels [examples], predictions [runs, examples] and weights [samples, examples]: [samples, runs].
RESAMPLED_METRICS: dict[str, Metric] = {
    "accuracy": compute_accuracy,
    "f1": compute_f1,
    "accuracy_f1": average_metrics(compute_accuracy, compute_f1),
    "matthews": compute_matthews,
    "pearson": compute_pearson,
    "spearman": compute_spearman,
    "pearson_spearman": average_metrics(compute_pearson, compute_spearman),
}
