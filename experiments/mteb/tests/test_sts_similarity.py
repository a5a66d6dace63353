"""Sentence similarity by frozen encoders: calibrations, correlations, MTEB's numbers, the cache, bad input."""

import numpy as np
import pytest
import torch
from helpers import WORDS, check_done, read_analysis_rows, read_states, write_parquet
from scipy import stats

from isobench.analyses.rows import select_rows
from isobench_papers.mteb import sts_similarity
from isobench_papers.mteb.similarities import SIMILARITIES


@pytest.mark.slow
def test_the_experiments_rows_are_those_of_their_definitions(cli, tiny, outputs, tmp_path):
    repeated = [f"the {word}" for word in WORDS[:4]] * 5
    same = {"sentence1": repeated, "sentence2": repeated[::-1], "score": np.linspace(0, 5, 20).tolist()}
    rng = np.random.default_rng(0)
    table = {
        key: [" ".join(rng.choice(WORDS, rng.integers(2, 12))) for _ in range(24)]
        for key in ("sentence1", "sentence2")
    }
    table["score"] = rng.uniform(0, 5, 24).tolist()
    for name, columns in (("sts16", table), ("stsb_test_labelled", same)):
        write_parquet(tmp_path / "sts" / f"{name}.parquet", columns)
    check_done(cli(
        "+experiment=sts_similarity", "encoder=local", f"encoder.path={tiny}", "encoder.layer=null,0",
        f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}", f"output_dir={outputs}", "tracking=none",
        "calibration=none,center,isobn_paper", "analysis.sets=[sts16,stsb]", "analysis.fit=sts16",
    ))  # fmt: skip
    rows = read_analysis_rows(outputs, "sts_similarity")["similarity"]
    assert len(rows) == 2 * 2 * 3 * 4  # sets, layers, methods, similarities
    both = [read_states(tiny, table[key]) for key in ("sentence1", "sentence2")]
    for layer, place in ((None, -1), (0, 0)):
        left, right = (np.stack([states.mean(0) for states in layers[place]]) for layers in both)
        mean = np.concatenate([left, right]).mean(0)
        for method, (a, b) in {"none": (left, right), "center": (left - mean, right - mean)}.items():
            cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
            (row,) = select_rows(rows, {"set": "sts16", "layer": layer, "method": method, "similarity": "cosine"})
            assert row["pearson"] == pytest.approx(100 * stats.pearsonr(cosine, table["score"]).statistic, abs=1e-3)
        share = np.concatenate([left, right]).var(0)
        assert row["top_share"] == pytest.approx(share.max() / share.sum(), rel=1e-4)
    assert all(row["gain"] == 0 for row in rows if row["method"] == "none")


@pytest.mark.slow
def test_minilms_correlations_are_mtebs(sentence_pairs, cli, cache, outputs):
    sets = {"sts13", "sts16", "stsb"}
    check_done(cli(
        "+experiment=sts_similarity", "encoder=minilm", "encoder.layer=null", "calibration=none", "tracking=none",
        f"data.root={sentence_pairs}", f"data.cache={cache}", f"output_dir={outputs}", "analysis.unit_length=true",
        f"analysis.sets=[{','.join(sorted(sets))}]",
    ))  # fmt: skip
    rows = read_analysis_rows(outputs, "sts_similarity")["published"]
    assert len(rows) == 3 * 2 * 2  # sets, similarities, correlations
    assert {row["set"] for row in rows} == sets
    assert max(abs(row["difference"]) for row in rows) < 0.1


def test_wmean_is_the_weighted_mean_of_the_subsets_correlations():
    rng = np.random.default_rng(8)
    vectors, scores = torch.tensor(rng.normal(size=(80, 5))), rng.uniform(0, 5, 40)
    parts = ["a"] * 25 + ["b"] * 10 + ["a"] * 5
    [[spearman, pearson]] = sts_similarity.compute_correlations(vectors, scores, ["l2"], parts)
    values = -np.linalg.norm((vectors[:40] - vectors[40:]).numpy(), axis=1)
    inside = np.array(parts) == "a"
    for found, function in ((spearman, stats.spearmanr), (pearson, stats.pearsonr)):
        expected = [function(values[kept], scores[kept]).statistic for kept in (inside, ~inside)]
        assert found == pytest.approx(100 * np.average(expected, weights=[30, 10]), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "by_definition"),
    [
        ("cosine", lambda x, y: x @ y / np.sqrt((x @ x) * (y @ y))),
        ("inner", lambda x, y: sum(a * b for a, b in zip(x, y, strict=True))),
        ("spearman", lambda x, y: stats.spearmanr(x, y).statistic),
        ("l1", lambda x, y: -sum(abs(a - b) for a, b in zip(x, y, strict=True))),
    ],
)
def test_each_is_its_definition(name, by_definition):
    left, right = np.random.default_rng(3).normal(2, [1, 5, 0.1, 3, 1, 1, 2], (2, 30, 7))
    left[4, 2] = left[4, 5]  # two equal coordinates
    right[9] = np.round(right[9])  # several
    found = SIMILARITIES[name](torch.tensor(left), torch.tensor(right))
    expected = [by_definition(x, y) for x, y in zip(left, right, strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_a_vector_without_direction_or_order_is_similar_to_nothing():
    other = torch.arange(5.0)[None].double()
    for name, vector in (("cosine", 0 * other), ("spearman", 0 * other + 2), ("l1", other)):
        assert SIMILARITIES[name](vector, other).item() == 0
