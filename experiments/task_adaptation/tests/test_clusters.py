"""Counting clusters: planted ones are found, by t-SNE and in the vectors, and one Gaussian is one cluster."""

import math

import numpy as np
import pytest
import torch
from scipy.cluster.vq import kmeans2

from isobench_papers.task_adaptation.clusters import compare_with_one_gaussian, compute_cluster_index, count_clusters
from isobench_papers.task_adaptation.embeddings import tsne


def plant(*sizes: int, distance: float = 6.0, width: int = 32) -> np.ndarray:
    """Draw one Gaussian for each size, its mean that far out on an axis of its own; axes have falling variances."""
    rng = np.random.default_rng(1)
    spread = 1 / np.sqrt(np.arange(1, width + 1))
    means = [np.eye(width)[i] * distance * (len(sizes) > 1) for i in range(len(sizes))]
    vectors = [mean + rng.normal(size=(n, width)) * spread for mean, n in zip(means, sizes, strict=True)]
    return np.concatenate(vectors).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "number"), [((300,), 1), ((150, 150), 2), ((270, 30), 2), ((100, 100, 100), 3)])
def test_tsne_shows_the_planted_clusters(sizes, number):
    places = tsne(torch.from_numpy(plant(*sizes)), 30, 1)
    assert count_clusters(places, 0.05)[0] == number


def test_points_far_from_all_are_in_no_cluster():
    rng = np.random.default_rng(0)
    lone = np.array([[100.0, 100.0], [-300.0, 500.0], [900.0, -700.0]])
    points = np.concatenate([rng.normal(size=(60, 2)), rng.normal(size=(37, 2)) + 20, lone])
    number, outside = count_clusters(points, 0.05)
    assert number == 2
    assert outside >= 0.03
    assert count_clusters(points, 0.4)[0] < 2  # the second cluster is smaller than that


def test_the_index_is_the_share_of_variance_within_two_clusters():
    vectors = plant(60, 40)
    centres, labels = kmeans2(vectors.astype(np.float64), 2, minit="++", rng=np.random.default_rng(0))
    within = ((vectors - centres[labels]) ** 2).sum()
    assert compute_cluster_index(vectors) == pytest.approx(
        within / ((vectors - vectors.mean(0)) ** 2).sum(), rel=1e-4
    )
    assert math.isnan(compute_cluster_index(np.ones((5, 3), np.float32)))


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "several"), [((300,), False), ((200, 100), True), ((20,), False)])
def test_one_gaussian_is_told_from_two(sizes, several):
    ours, gaussian = compare_with_one_gaussian(torch.from_numpy(plant(*sizes)), 1)
    assert (ours < gaussian) == several
    assert (ours, gaussian) == compare_with_one_gaussian(torch.from_numpy(plant(*sizes)), 1)
