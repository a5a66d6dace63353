"""IsoBN's Table 2 and Figures 4 to 7: explained variance, deviations and correlations of dimensions, by NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import check_done, make_config, read_analysis_rows

from isobench.analyses.subject import Subject
from isobench.runs.identity import identify
from isobench.runs.run import Run
from isobench_papers.isobn import embeddings


@pytest.fixture
def arguments(small):
    return [*small, "encoder.pooling=cls", "task.train_samples=100"]


@pytest.mark.slow
def test_explained_variance_is_that_of_an_svd_under_every_method(cli, arguments, outputs):
    check_done(cli("+experiment=isobn_ev", *arguments, "analysis.curve=32"))
    cfg = make_config(*arguments)
    h = Subject(Run.of(cfg, identify(cfg).key)).encoded().double().numpy()
    correlation = np.corrcoef(h.T)
    theta = 1 / (h.std(0) * (correlation**2).sum(1) + 0.1)
    # IsoBN's last factor, which keeps the sum of variances, is one number: explained variance ignores it.
    expected = {"none": h, "batch_norm": h / np.sqrt(h.var(0) + 1e-5), "isobn_paper": h * theta}
    rows = read_analysis_rows(outputs, "isobn_ev")["explained_variance"]
    for method, matrix in expected.items():
        values = np.linalg.svd(matrix - matrix.mean(0), compute_uv=False) ** 2
        found = [row["ev"] for row in rows if row["method"] == method]
        np.testing.assert_allclose(found, np.cumsum(values) / values.sum(), rtol=1e-5, err_msg=method)
    # Layer 0 of [CLS] is one vector, its token's and its position's: no variance.
    layers = ["-m", "calibration=none,whitening_zca", "encoder.layer=0,1,2"]
    out, _ = check_done(cli("+experiment=isobn_ev", *arguments, *layers, "analysis.curve=32"))
    rows = read_analysis_rows(outputs, "isobn_ev")["explained_variance"]
    first = {(row["encoder"], row["method"]): row["ev"] for row in rows if row["k"] == 1}
    assert first["local layer=1", "whitening_zca"] < 0.1 < first["local layer=1", "none"]
    assert out.count("no variance") == 2


def plant(sizes, noise=0.1, n=500):
    """Vectors [n, d] with groups of dimensions that repeat each other, with either sign, shuffled."""
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    signs, common = rng.choice([-1, 1], len(groups)), rng.normal(size=(n, len(sizes)))
    return signs * (common[:, groups] + noise * rng.normal(size=(n, len(groups))))


def measure(h):
    names, vectors = {"encoder": "some", "task": "one"}, torch.tensor(h, dtype=torch.float32)
    found = embeddings.measure_dimensions(SimpleNamespace(**names, embeddings=lambda: vectors), [0.5], 0.5)
    return {name: [names | row for row in own] for name, own in found.items()}


def test_dimensions_of_planted_groups():
    h = plant((6, 3, 1))
    h[:, 0] = 2.0
    rows = measure(h * 10.0 ** np.linspace(-5, 0, 10))
    (row,), deviations = rows["summary"], np.array([one["std"] for one in rows["dimensions"]])
    assert (row["constant"], row["dimensions"], row["examples"]) == (1, 10, 500)
    assert row["std_min"] == pytest.approx(deviations[1:].min())
    assert row["clusters"] == len(rows["clusters"]) == 4  # the constant one alone
    pairs = np.abs(np.corrcoef(h[:, 1:].T))[np.triu_indices(9, 1)]
    assert row["mean_correlation"] == pytest.approx(pairs.sum() / 45, abs=1e-4)
    assert row["share_above_0.5"] == pytest.approx((pairs > 0.5).sum() / 45)
    assert row["mean_off_blocks"] < row["mean_correlation"] / 3
    assert row["geometric_spread"] == pytest.approx(np.exp(np.std(np.log(deviations[1:]))))


def test_rows_have_the_correlations_in_the_order_of_the_clusters_and_blocks_of_many(monkeypatch):
    h = plant((6, 3, 1))
    rows = measure(h)
    order = np.argsort([row["place"] for row in rows["dimensions"]])
    expected = np.abs(np.corrcoef(h.T))[np.ix_(order, order)]
    np.testing.assert_allclose(embeddings.read_matrix(rows["correlations"]), expected, atol=1e-4)
    monkeypatch.setattr(embeddings, "MAX_CELLS", 5)
    blocks = expected.reshape(5, 2, 5, 2).mean((1, 3))
    np.testing.assert_allclose(embeddings.read_matrix(measure(h)["correlations"]), blocks, atol=1e-4)


@pytest.mark.slow
def test_isobn_embeddings_from_the_command_line(cli, arguments, outputs):
    check_done(cli("+experiment=isobn_embeddings", *arguments))
    rows = read_analysis_rows(outputs, "isobn_embeddings")
    cfg = make_config(*arguments)
    h = Subject(Run.of(cfg, identify(cfg).key)).encoded().double().numpy()
    np.testing.assert_allclose([row["std"] for row in rows["dimensions"]], h.std(0), rtol=1e-10)
    sizes = [row["size"] for row in rows["clusters"]]
    clusters = [row["cluster"] for row in rows["dimensions"]]
    assert np.bincount(clusters)[1:].tolist() == sizes == sorted(sizes, reverse=True)
