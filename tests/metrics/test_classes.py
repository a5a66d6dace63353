"""Measures of classes and of single coordinates: by brute force, and by scikit-learn."""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_samples

from isobench.metrics import (
    best_threshold_accuracy,
    coordinate_share,
    silhouette,
    silhouette_values,
    threshold_accuracies,
)


def classes_of_vectors(rows=40, dim=5, classes=3, seed=0, shift=1000.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    return rng.normal(size=(rows, dim)) + 0.7 * labels[:, None] + shift, labels


@pytest.mark.parametrize(("rows", "classes"), [(40, 2), (40, 3), (12, 6)])
def test_the_silhouette_is_scikit_learns(rows, classes):
    h, labels = classes_of_vectors(rows, classes=classes, seed=3)
    expected = silhouette_samples(h, labels, metric="sqeuclidean")  # Rousseeuw's, of all squared distances
    np.testing.assert_allclose(silhouette_values(h, labels).numpy(), expected, rtol=0, atol=1e-9)
    assert silhouette(torch.from_numpy(h), torch.from_numpy(labels)) == pytest.approx(expected.mean(), abs=1e-9)


def test_silhouettes_of_equal_vectors_lonely_ones_and_one_class():
    h = np.array([[1.0, 2], [1, 2], [1, 2], [5, 5]])
    assert silhouette_values(h, np.array([0, 0, 1, 2])).tolist() == [0, 0, 0, 0]
    assert silhouette_values(h, np.array([0, 0, 1, 1]))[:2].tolist() == [1, 1]
    assert silhouette_values(h[2:], np.array([0, 1])).tolist() == [0, 0]
    assert math.isnan(silhouette(h, np.zeros(4, int)))
    assert math.isnan(silhouette(h[:1], np.zeros(1, int)))


def accuracies_by_brute_force(h, labels):
    """Every threshold between two values and one below all, and every pair of classes for its two sides."""
    pairs, best = list(itertools.product(sorted(set(labels.tolist())), repeat=2)), []
    for column in h.T:
        thresholds = [-math.inf, *(sum(pair) / 2 for pair in itertools.pairwise(sorted(set(column))))]
        sides = [(column > threshold, *pair) for threshold in thresholds for pair in pairs]
        best.append(max(np.mean(np.where(*side) == labels) for side in sides))
    return best


@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("ties", [False, True])
def test_the_best_threshold_is_found(classes, ties):
    h, labels = classes_of_vectors(14, 66, classes, seed=5, shift=0.0)  # more columns than are sorted at once
    h = np.round(h) if ties else h
    labels = labels * 7 - 3  # any whole numbers
    expected = accuracies_by_brute_force(h, labels)
    np.testing.assert_allclose(threshold_accuracies(h, labels).numpy(), expected, rtol=0, atol=1e-12)
    assert best_threshold_accuracy(h, labels) == pytest.approx(max(expected))


def test_the_share_of_a_coordinate():
    h, _ = classes_of_vectors()
    variances = h.var(0)
    assert coordinate_share(h) == pytest.approx(variances.max() / variances.sum(), abs=1e-12)
    outlier = torch.randn(50, 4) * torch.tensor([1.0, 1e3, 1, 1])
    assert coordinate_share(outlier) > 0.99
    for nothing in (torch.ones(4, 3), torch.randn(1, 3)):
        assert math.isnan(coordinate_share(nothing))
