"""Figures 1 to 3 of Efficient Task Adaptation: clusters, and the analysis from the command line."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import check_done, read_analysis_rows
from scipy.cluster.vq import kmeans2
from sklearn.feature_selection import f_classif

from isobench_papers.task_adaptation.embeddings import (
    compare_with_one_gaussian,
    compute_cluster_index,
    count_clusters,
    tsne,
)


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
    places = tsne(plant(*sizes), 30, 1)
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
    whole = ((vectors - vectors.mean(0)) ** 2).sum()
    assert compute_cluster_index(vectors) == pytest.approx(within / whole, rel=1e-4)
    assert math.isnan(compute_cluster_index(np.ones((5, 3), np.float32)))


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "several"), [((300,), False), ((200, 100), True), ((20,), False)])
def test_one_gaussian_is_told_from_two(sizes, several):
    ours, gaussian = compare_with_one_gaussian(plant(*sizes), 1)
    assert (ours < gaussian) == several
    assert (ours, gaussian) == compare_with_one_gaussian(plant(*sizes), 1)


@pytest.mark.slow
def test_with_a_pooler_h_is_what_comes_out_of_it_and_else_what_goes_in(cli, tiny, reviews, tmp_path):
    import pyarrow.parquet
    from transformers import BertModel

    setting = [
        "+experiment=adaptation_embeddings", "encoder=local", f"encoder.path={tiny}", "task=sst2",
        f"data.root={reviews}", f"data.cache={tmp_path}/cache", f"output_dir={tmp_path}", "tracking=none",
    ]  # fmt: skip
    check_done(cli(*setting, "encoder.pooling=pooler", "analysis.points=100"))
    (file,) = (tmp_path / "cache" / "embeddings").glob("*.npy")
    before = torch.tensor(np.load(file))
    dense = BertModel.from_pretrained(tiny).pooler.dense
    after = torch.tanh(before @ dense.weight.T + dense.bias).detach().double().numpy()
    rows = read_analysis_rows(tmp_path, "adaptation_embeddings")
    names = ("mean", "std", "fisher", "fisher_rank")
    mean, std, fisher, rank = (np.array([row[name] for row in rows["dimensions"]]) for name in names)
    np.testing.assert_allclose(mean, before.double().numpy().mean(0), rtol=1e-6)
    np.testing.assert_allclose(std, after.std(0), rtol=1e-4)
    labels = pyarrow.parquet.read_table(Path(reviews) / "glue" / "sst2" / "train.parquet")["label"].to_numpy()
    np.testing.assert_allclose(fisher * (160 - 2), f_classif(after, labels)[0], rtol=1e-3)
    assert (np.diff(fisher[np.argsort(rank)]) <= 0).all()
    examples = [row["example"] for row in rows["tsne"]]
    assert examples == [i * 160 // 100 for i in range(100)]
    assert [row["class"] for row in rows["tsne"]] == np.array(["negative", "positive"])[labels[examples]].tolist()
    check_done(cli(*setting, "analysis.points=60", "analysis.perplexity=9"))
    std = [row["std"] for row in read_analysis_rows(tmp_path, "adaptation_embeddings")["dimensions"]]
    np.testing.assert_allclose(std, before.double().numpy().std(0), rtol=1e-6)
