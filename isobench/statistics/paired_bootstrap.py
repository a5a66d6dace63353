"""Compare two methods that share seeds and dev examples, for new seeds and new examples together.

The Multi-Bootstrap (Sellam et al., arXiv 2106.16163) resamples seeds and examples and reads an interval from the
quantiles of the resampled differences. With few seeds that interval is wrong in three ways. Resampling n seeds gives
(n - 1) / n of their variance. Normal quantiles stand where n seeds need Student's. And what depends on seed and
example together is counted three times: with the seeds, with the examples, and with both. So the variance is put
together from its parts here. With d_i the difference of the two methods' scores of seed i:

    Var(mean d) = A + C
    A = (sample variance of d_i) / n: seeds, and what depends on seed and example together
    C = covariance of d_i and d_k (i != k) over resampled examples, mean over pairs of seeds: what examples do alike
        in every seed; 0 where it is estimated to be negative

This is Obuchowski and Rockette's variance for readers and cases (1995). Its t statistic has (n - 1) (1 + C / A)
degrees of freedom here. Hillis's (2007) square 1 + C / A, and his interval then holds the true value in only 92% of
studies with 3 seeds where C is a tenth of A. No result is surer than a paired t-test over the seeds alone.
docs/site/simulated_pairs.py shows how often the intervals hold the true value, and how often p is below .05
by chance.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from isobench.statistics.seeds import ALPHA

RESAMPLES = 1_000  # of the examples, as in the paper
MIN_SEEDS = 3  # with 2 the simulated intervals are so wide that they nearly always hold the true value
MIN_EXAMPLES = 100  # the fewest that the simulation has
MIN_DISAGREEMENTS = 10  # of the two methods' correctness, over all seeds and examples
MIN_CLASS_EXAMPLES = 20  # of the rarest class, for metrics other than accuracy
CORRELATIONS = ("pearson", "spearman", "pearson_spearman")  # metrics of scores; the others are of classes
CHUNK = 100  # bootstrap samples that are handled at a time, to save memory
ALL_EQUAL = "every seed has the same difference, so that the spread over seeds is unknown"


class PairedComparison(NamedTuple):
    """Hold the comparison of a method with plain fine-tuning over shared seeds and dev examples, in points."""

    difference: float = math.nan  # mean over seeds
    low: float = math.nan  # its 95% interval for new seeds and new examples
    high: float = math.nan
    p: float = math.nan  # two-sided
    seeds: int = 0  # those that both share
    examples: int = 0
    reason: str = ""  # why no comparison was made; empty if one was


class PairedTest(NamedTuple):
    """Mean difference over seeds, half the width of its 95% interval, and two-sided p: arrays [studies], or numbers.

    Margin and p are NaN where the seeds do not differ.
    """

    value: np.ndarray
    margin: np.ndarray
    p: np.ndarray


def judge_differences(differences: np.ndarray, covariance: np.ndarray | float) -> PairedTest:
    """Test whether the mean difference of two methods is zero for new seeds and new examples.

    The interval is the wider, and p the larger, of two: with the variance A + C (top of this file), and of
    the paired t-test over seeds.

    Args:
        differences: score of the method less that of plain fine-tuning with the same seed, [..., seeds].
        covariance: of the differences of two seeds over samples of examples, mean over pairs of seeds, [...].
    """
    from scipy import special  # slow to import, and planning a sweep does not need it

    seeds = differences.shape[-1]
    value = differences.mean(-1)
    of_seeds = np.asarray(differences.var(-1, ddof=1) / seeds)  # A
    of_seeds = np.where(of_seeds > (1e-12 * (1 + np.abs(value))) ** 2, of_seeds, np.nan)  # less is rounding
    of_examples = np.maximum(covariance, 0.0)  # C
    freedom = (seeds - 1) * (1 + of_examples / of_seeds)  # the factor is not squared: see the top of this file
    # First with A + C, then those of the paired t-test.
    errors = np.stack([np.sqrt(of_seeds + of_examples), np.sqrt(of_seeds)])
    freedoms = np.stack([freedom, np.full_like(freedom, seeds - 1)])
    margin = (special.stdtrit(freedoms, 1 - ALPHA / 2) * errors).max(0)
    return PairedTest(value, margin, (2 * special.stdtr(freedoms, -np.abs(value) / errors)).max(0))


def average_covariance(samples: np.ndarray) -> np.ndarray:
    """Average the covariances of all pairs of columns, by their mean's variance: [..., samples, columns] -> [...]."""
    columns = samples.shape[-1]
    of_mean = samples.mean(-1).var(-1, ddof=1)
    return (columns * of_mean - samples.var(-2, ddof=1).mean(-1)) / (columns - 1)


@lru_cache(maxsize=4)  # all cells of a column have the same examples
def draw_multiplicities(examples: int, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Draw bootstrap samples of examples: how often each sample has each example, [resamples, examples] of uint8.

    A sample has as many examples as there are, drawn with replacement. That one is drawn more than 255 times, which
    the type could not hold, has a probability under 1e-500.
    """
    rng = np.random.default_rng(seed)
    multiplicities = np.empty((resamples, examples), np.uint8)
    for row in multiplicities:
        row[:] = np.bincount(rng.integers(examples, size=examples), minlength=examples)
    multiplicities.flags.writeable = False  # callers share it
    return multiplicities


def compare_predictions(
    metric: str,
    labels: np.ndarray,
    ours: np.ndarray,
    theirs: np.ndarray,
    multiplicities: np.ndarray | None = None,
) -> PairedComparison:
    """Compare two methods by their predictions for the same examples with the same seeds.

    Args:
        metric: one of `isobench.statistics.paired_bootstrap.RESAMPLED_METRICS`.
        labels: true classes or scores, [examples].
        ours: predicted classes or scores of the method, [seeds, examples].
        theirs: the same of plain fine-tuning, with the same seeds in the same order.
        multiplicities: bootstrap samples from ``draw_multiplicities``; drawn here if they are not given. Accuracy
            needs none: its covariance is computed as infinitely many samples would give it.
    """
    seeds, examples = ours.shape
    none = PairedComparison(seeds=seeds, examples=examples)
    if reason := _find_obstacle(metric, labels, ours, theirs):
        return none._replace(reason=reason)
    if metric == "accuracy":
        changes = (ours == labels).astype(np.float64) - (theirs == labels)
        differences, covariance = changes.mean(1), average_covariance(changes.T) / examples
    else:
        if multiplicities is None:
            multiplicities = draw_multiplicities(examples)
        differences, covariance = resample_differences(metric, labels, ours, theirs, multiplicities)
    if not np.isfinite(differences).all() or not np.isfinite(covariance):
        return none._replace(reason="the score is undefined on some samples of the examples")
    test = judge_differences(100 * differences, 1e4 * covariance)
    if math.isnan(test.p):
        return none._replace(reason=ALL_EQUAL)
    value, margin = float(test.value), float(test.margin)
    return PairedComparison(value, value - margin, value + margin, float(test.p), seeds, examples)


def resample_differences(
    metric: str, labels: np.ndarray, ours: np.ndarray, theirs: np.ndarray, multiplicities: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute each seed's difference, [seeds], and their covariance over bootstrap samples of the examples.

    A sample of m examples gives (m - 1) / m of the covariance, which is made good.
    """
    seeds, examples = ours.shape
    both = np.concatenate([ours, theirs])
    whole = resample_metric(metric, labels, both, np.ones((1, examples)))[0]
    scores = resample_metric(metric, labels, both, multiplicities)
    covariance = average_covariance(scores[:, :seeds] - scores[:, seeds:]) * examples / (examples - 1)
    return whole[:seeds] - whole[seeds:], covariance


def _find_obstacle(metric: str, labels: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> str:
    """Say why docs/site/simulated_pairs.py does not cover predictions [seeds, examples]; empty if it does."""
    seeds, examples = ours.shape
    if seeds < MIN_SEEDS:
        return f"{seeds} shared seed{'s' * (seeds != 1)}, fewer than {MIN_SEEDS}"
    if examples < MIN_EXAMPLES:
        return f"{examples} dev examples, fewer than {MIN_EXAMPLES}"
    if not all(np.isfinite(values).all() for values in (labels, ours, theirs)):
        return "a label or a prediction is not a finite number"
    if any((run == run[0]).all() for run in (*ours, *theirs)):
        return "a run predicts the same for every example"
    if metric in CORRELATIONS:
        return ""
    disagreements = int(((ours == labels) != (theirs == labels)).sum())
    if disagreements < MIN_DISAGREEMENTS:
        return f"the methods disagree on {disagreements} predictions, fewer than {MIN_DISAGREEMENTS}"
    rarest = min(np.unique(labels, return_counts=True)[1])
    if metric != "accuracy" and (rarest < MIN_CLASS_EXAMPLES or rarest == examples):
        return f"a class has fewer than {MIN_CLASS_EXAMPLES} dev examples"
    return ""


# A bootstrap sample is given by its multiplicities: how often it has each example. Most metrics follow from sums
# weighted by them, which are matrix products. `isobench.metrics.task` defines the metrics, and the tests compare
# these functions with it. It is not imported, because reports are made without torch.
def resample_metric(
    metric: str, labels: np.ndarray, predictions: np.ndarray, multiplicities: np.ndarray
) -> np.ndarray:
    """Compute a metric of every run on every bootstrap sample, [samples, runs]; NaN where it is undefined.

    Args:
        metric: one of ``RESAMPLED_METRICS``.
        labels: true classes or scores, [examples].
        predictions: predicted classes or scores, [runs, examples].
        multiplicities: how often each sample has each example, [samples, examples].
    """
    function = RESAMPLED_METRICS[metric]
    chunks = (multiplicities[start : start + CHUNK] for start in range(0, len(multiplicities), CHUNK))
    return np.concatenate([function(labels, predictions, chunk.astype(np.float64)) for chunk in chunks])


def _compute_accuracy(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return weights @ (predictions == labels).T.astype(np.float64) / weights.sum(1, keepdims=True)


def _compute_f1(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute the F1 score of class 1; 0 if no example has it or is predicted to have it."""
    positive, predicted = labels == 1, predictions == 1
    hits = weights @ (positive & predicted).T.astype(np.float64)
    total = weights @ predicted.T.astype(np.float64) + (weights @ positive.astype(np.float64))[:, None]
    return np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)


def _compute_matthews(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute Matthews's correlation of any classes (Gorodkin 2004); 0 if labels or predictions are one class."""
    count = weights.sum(1, keepdims=True)  # [samples, 1]
    correct = weights @ (predictions == labels).T.astype(np.float64)  # [samples, runs]
    products, of_labels, of_predictions = np.zeros_like(correct), np.zeros_like(count), np.zeros_like(correct)
    for label in np.union1d(labels, predictions):
        true = (weights @ (labels == label).astype(np.float64))[:, None]
        predicted = weights @ (predictions == label).T.astype(np.float64)
        products += true * predicted
        of_labels += true**2
        of_predictions += predicted**2
    scale = np.sqrt((count**2 - of_labels) * (count**2 - of_predictions))
    return np.divide(correct * count - products, scale, out=np.zeros_like(correct), where=scale > 0)


def _compute_pearson(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute Pearson's correlation; NaN if labels or predictions do not vary."""
    y, x = labels - labels.mean(), predictions - predictions.mean(1, keepdims=True)
    count = weights.sum(1, keepdims=True)
    mean_x, mean_y = weights @ x.T / count, (weights @ y)[:, None] / count
    covariance = weights @ (x * y).T / count - mean_x * mean_y
    variances = weights @ (x * x).T / count - mean_x**2, (weights @ (y * y))[:, None] / count - mean_y**2
    return _divide_by_spread(covariance, *variances, (x * x).mean(1), (y * y).mean())


def _compute_spearman(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute Spearman's correlation, with ranks among the examples of each sample; NaN if a side does not vary."""
    count = weights.sum(1, keepdims=True)
    y = _rank_in_samples(labels, weights) - (count + 1) / 2  # less the mean rank
    weighted_y = weights * y
    variance_y = (weighted_y * y).sum(1)
    columns = []
    for run in predictions:
        x = _rank_in_samples(run, weights) - (count + 1) / 2
        variance_x = np.einsum("sm,sm,sm->s", weights, x, x)
        columns.append(_divide_by_spread((weighted_y * x).sum(1), variance_x, variance_y, 1.0, 1.0))
    return np.stack(columns, axis=1)


def _rank_in_samples(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rank the values [examples] in each bootstrap sample from 1, ties by their mean: [samples, examples]."""
    distinct, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(distinct)))
    totals = np.add.reduceat(weights[:, order], starts, axis=1)  # of each distinct value
    return (np.cumsum(totals, axis=1) - (totals - 1) / 2)[:, group]


def _divide_by_spread(
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


def _average_metrics(first: "Metric", second: "Metric") -> "Metric":
    return lambda labels, predictions, weights: (
        (first(labels, predictions, weights) + second(labels, predictions, weights)) / 2
    )


Metric = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
# Each takes labels [examples], predictions [runs, examples] and weights [samples, examples]: [samples, runs].
RESAMPLED_METRICS: dict[str, Metric] = {
    "accuracy": _compute_accuracy,
    "f1": _compute_f1,
    "accuracy_f1": _average_metrics(_compute_accuracy, _compute_f1),
    "matthews": _compute_matthews,
    "pearson": _compute_pearson,
    "spearman": _compute_spearman,
    "pearson_spearman": _average_metrics(_compute_pearson, _compute_spearman),
}
