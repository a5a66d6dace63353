"""IsoBN's Table 2 and Figures 4 to 7: explained variance, deviations and correlations of dimensions, by NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import check_done, make_config, read_analysis_rows, read_records

from isobench.analyses.subject import Subject
from isobench.runs.run import Run
from isobench_papers.isobn import embeddings
from isobench_papers.isobn.drift_monitor import fit_optimal_classifier, logit_variance_shares, measure_drift


@pytest.mark.slow
def test_explained_variance_is_that_of_an_svd_under_every_method(cli, small, outputs):
    arguments = [*small, "encoder.pooling=cls", "task.train_samples=100"]
    check_done(cli("+experiment=isobn_ev", *arguments, "analysis.curve=32"))
    h = Subject(Run.of(make_config(*arguments), "0" * 64)).encoded().double().numpy()
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


RNG = np.random.default_rng(0)


def data(n=200, d=6):
    h = RNG.normal(size=(n, d)) @ np.diag([5, 2, 1, 1, 0.5, 0.1]) + 3
    values, vectors = np.linalg.eigh(np.cov(h.T, bias=True))
    return h, values[::-1].copy(), vectors[:, ::-1].copy()


def test_shares_are_the_variance_of_the_logits_that_projections_give():
    h, values, vectors = data()
    weight = RNG.normal(size=(3, 6))
    expected = []
    for k in (1, 2, 5, 6):
        subspace = vectors[:, :k] @ vectors[:, :k].T
        part, whole = np.var(h @ subspace @ weight.T, axis=0), np.var(h @ weight.T, axis=0)
        expected.append((part / whole).mean())
    found = logit_variance_shares(*(torch.from_numpy(x) for x in (weight, values, vectors)), (1, 2, 5, 6))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert found[-1] == pytest.approx(1)


def test_drift_is_measured_within_the_subspace_only():
    _, _, vectors = data()
    initial = RNG.normal(size=(2, 6))
    outside = initial + 7 * vectors[:, 3]  # the fourth component: not among the top three
    moved = initial + 0.5 * vectors[:, 0]
    top = torch.from_numpy(vectors[:, :3])
    norm = np.linalg.norm(initial @ vectors[:, :3], axis=1).mean()
    drift = measure_drift(torch.from_numpy(outside), torch.from_numpy(initial), top)
    assert drift == pytest.approx({"cosine": 1, "l2": 0, "initial_norm": norm}, abs=1e-12)
    drift = measure_drift(torch.from_numpy(moved), torch.from_numpy(initial), top)
    projected = [(w @ vectors[:, :3], v @ vectors[:, :3]) for w, v in zip(moved, initial, strict=True)]
    assert (drift["l2"], drift["initial_norm"]) == (pytest.approx(0.5), pytest.approx(norm))
    lengths = [np.linalg.norm(a) * np.linalg.norm(b) for a, b in projected]
    cosines = [a @ b / length for (a, b), length in zip(projected, lengths, strict=True)]
    assert drift["cosine"] == pytest.approx(np.mean(cosines))


def test_the_optimal_classifier_finds_the_component_that_matters():
    h, values, vectors = data()
    labels = ((h - h.mean(0)) @ vectors[:, 3] > 0).astype(int)  # a small component decides
    best = torch.from_numpy(fit_optimal_classifier(h, labels))
    top = logit_variance_shares(best, torch.from_numpy(values), torch.from_numpy(vectors), (1, 3, 4))
    assert top[1] < 0.2 < 0.8 < top[2]


@pytest.mark.slow
def test_trained_runs_are_analysed_and_measuring_does_not_change_the_training(cli, small, outputs):
    shared = ["task.train_samples=64", "task.dev_samples=30", "encoder.pooling=cls"]
    drifting = ["+experiment=isobn_drift", *small, *shared]
    check_done(cli(*drifting, "-m", "seed=1,2"))
    rows = read_analysis_rows(outputs, "isobn_drift")["drift"]
    assert [(row["seed"], row["epoch"]) for row in rows] == [(s, e) for s in (1, 2) for e in (0, 1, 2)]
    for row in rows:
        if row["epoch"] == 0:
            assert (row["cosine"], row["l2"]) == (pytest.approx(1), 0)
        else:
            assert row["l2"] > 0
        assert row["initial_norm"] > 0
        assert row["fine_tuned_top1"] <= row["fine_tuned_top5"] <= row["fine_tuned_top30"]
    assert cli(*small, *shared, "optimization.epochs=2", "optimization.batch_size=16", "optimization.lr=3e-3")[0] == 0
    records = [record for record in read_records(outputs).values() if record["config"]["seed"] == 1]
    measured, plain = sorted(records, key=lambda record: "drift" not in record["history"][0])
    assert "drift" in measured["history"][0]
    assert "drift" not in plain["history"][0]
    for name in ("isotropy", "score"):
        assert [epoch[name] for epoch in measured["history"]] == [epoch[name] for epoch in plain["history"]]
