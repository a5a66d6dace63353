"""Retrieval in a diagnosis: measures by loops, hubs by brute force, and methods fitted on the corpus."""

import math

import numpy as np
import pandas
import pytest
import torch
from helpers import fails
from scipy import stats

import isobench
from isobench.data.relevance import read_relevance
from isobench.frozen.diagnose import diagnose
from isobench.frozen.retrieval import make_search
from isobench.metrics import retrieval as module
from isobench.metrics.retrieval import find_top, measure_hubs

RNG = np.random.default_rng(0)
N, Q, D = 300, 25, 6


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def made():
    """A corpus with many equal documents and ids that do not sort as their rows, queries, graded judgements."""
    corpus = RNG.normal(size=(N, D)) + 1
    corpus[::3] = corpus[RNG.integers(0, 8, 100)]
    queries = RNG.normal(size=(Q, D)) + 1
    ids = [f"d{i}" for i in RNG.permutation(N)]
    names = [f"q{i}" for i in range(Q)]
    drawn = {(q, int(d)): int(RNG.integers(-1, 4)) for q in range(Q) for d in RNG.choice(N, 40, replace=False)}
    judged = [(names[q], ids[d], g) for (q, d), g in drawn.items()]
    return corpus, queries, ids, names, judged


def reference(corpus, queries, ids, names, judged):
    """nDCG@10, Recall@10, Recall@100 and MRR@10 of each query, by loops, in float64."""
    cosines = (unit(queries) @ unit(corpus).T).astype(np.float32)
    for group in {tuple(row) for row in corpus}:  # equal documents have equal cosines
        same = (corpus == group).all(1)
        cosines[:, same] = cosines[:, same.argmax()][:, None]
    rows = []
    for name, scores in zip(names, cosines, strict=True):
        grades = {d: g for q, d, g in judged if q == name and g > 0}
        answer = [ids[i] for i in sorted(range(len(ids)), key=lambda i: (scores[i], ids[i]), reverse=True)]
        gain = sum(grades.get(d, 0) / math.log2(rank + 2) for rank, d in enumerate(answer[:10]))
        ideal = sum(g / math.log2(rank + 2) for rank, g in enumerate(sorted(grades.values())[::-1][:10]))
        first = next((1 / (rank + 1) for rank, d in enumerate(answer[:10]) if d in grades), 0)
        rows.append([gain / ideal, *(len({*answer[:k]} & grades.keys()) / len(grades) for k in (10, 100)), first])
    return np.array(rows), cosines


def measure(corpus, queries, ids, names, judged):
    search, _ = make_search(queries, judged, names, ids)
    return search.score(lambda h: h, unit(corpus).astype(np.float32))


@pytest.mark.parametrize("block", [1 << 22, 25 * 7])
def test_measures_are_those_of_their_definitions(made, block, monkeypatch):
    monkeypatch.setattr(module, "SCORES", block)
    np.testing.assert_allclose(measure(*made), reference(*made)[0], atol=1e-9)


def test_too_few_documents_and_missing_ones_are_no_answers(made):
    corpus, queries, *_ = made
    few = unit(corpus[:5]).astype(np.float32)
    few[2] = np.nan
    found = find_top(unit(queries).astype(np.float32), few, np.arange(5), 100)
    assert found.shape == (Q, 100)
    assert {*found.ravel().tolist()} == {-1, 0, 1, 3, 4}
    assert (found[:, 4:] == -1).all()
    search, _ = make_search(queries[:1], [("0", "1", "1")], ["0"], ["0", "1"])
    alone = search.score(lambda h: h, np.full((2, D), np.nan, np.float32))
    assert alone.tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("block", [1 << 22, 700])
def test_hubs_are_counted(made, block, monkeypatch):
    monkeypatch.setattr(module, "SCORES", block)
    x = unit(RNG.normal(size=(80, 12)) + 0.5)
    cosines = x @ x.T
    np.fill_diagonal(cosines, -2)
    counts = np.bincount(np.argsort(-cosines, axis=1)[:, :10].ravel(), minlength=80)
    assert measure_hubs(x.astype(np.float32)) == pytest.approx((stats.skew(counts), (counts == 0).mean()), abs=1e-12)
    assert np.isnan(measure_hubs(x[:10].astype(np.float32))).all()


def test_methods_are_fitted_on_the_corpus_alone_and_compared_query_by_query(made):
    corpus, queries, ids, names, judged = made
    search, _ = make_search(queries, judged, names, ids)
    found = diagnose(corpus, search=search)
    rows = {row.method: row for row in found.retrieval}
    values, vectors = np.linalg.eigh(np.cov(corpus.T, bias=True))
    whitener = vectors / np.sqrt(values) @ vectors.T
    for name, matrix in (("none", None), ("centre", np.eye(D)), ("ZCA whitening", whitener)):
        after = [x if matrix is None else (x - corpus.mean(0)) @ matrix for x in (corpus, queries)]
        expected = reference(*after, ids, names, judged)[0].mean(0)
        row = rows[name]
        assert (row.ndcg_10, row.recall_10, row.recall_100, row.mrr_10) == pytest.approx(expected, abs=1e-4), name
        assert row.change == pytest.approx(row.ndcg_10 - rows["none"].ndcg_10)
        assert name == "none" or row.low < row.change < row.high
        assert name == "none" or 0 < row.p <= 1
    assert math.isnan(rows["none"].p)


def test_a_method_that_finds_what_is_hidden_under_one_direction_gains():
    rng = np.random.default_rng(3)
    corpus = rng.normal(size=(400, 20))
    queries = corpus[:100] + rng.normal(size=(100, 20)) / 2
    corpus[:, 0], queries[:, 0] = 60 * rng.normal(size=400), 60 * rng.normal(size=100)
    judged = [(str(q), str(q), "1") for q in range(100)]
    search, _ = make_search(queries, judged, list(map(str, range(100))), list(map(str, range(400))))
    rows = {row.method: row for row in diagnose(corpus, search=search).retrieval}
    assert rows["ZCA whitening"].low > 0.2
    assert rows["ZCA whitening"].p < 0.01


def test_queries_that_can_not_be_judged_are_left_out_and_counted(made):
    corpus, queries, ids, names, judged = made
    queries = queries.copy()
    queries[3] = np.nan
    kept = [(q, d, g) for q, d, g in judged if q != "q5"] + [("q5", ids[0], 0), ("elsewhere", ids[0], 1)]
    search, notes = make_search(queries, kept, names, ids)
    others = [i for i in range(Q) if i not in (3, 5)]
    expected = reference(corpus, queries[others], ids, [names[i] for i in others], judged)[0]
    np.testing.assert_allclose(search.score(lambda h: h, unit(corpus).astype(np.float32)), expected, atol=1e-9)
    assert len(notes) == 3
    assert "first row 3" in notes[0]
    for wrong in ([("q1", "nowhere", 1)], [("q1", ids[0], 0)], [("q1", ids[0], "high")]):
        with fails():
            make_search(queries, wrong, names, ids)
    with fails():
        make_search(queries, judged, names, [ids[1], *ids[1:]])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "query-id\tcorpus-id\tscore\nq 1\td1\t2\nq2\td2\t0\n"), ("a.txt", "q1 0 d1 2\nq2 0 d2 0\n"),
        ("a.qrels", "q1\td1\t2\nq2\td2\t0\n"), ("a.csv", "document,query,relevance\nd1,q1,2\nd2,q2,0\n"),
    ],
)  # fmt: skip
def test_files_of_judgements(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = [(q.replace(" ", ""), d, g) for q, d, g in read_relevance(tmp_path / name)]
    assert found == [("q1", "d1", "2"), ("q2", "d2", "0")]


@pytest.mark.parametrize("text", ["", "a b\n", "q\td\tx\ty\tz\n"])
def test_files_that_are_no_judgements(tmp_path, text):
    (tmp_path / "a.tsv").write_text(text)
    with fails():
        read_relevance(tmp_path / "a.tsv")


def test_one_coordinate_and_equal_rows():
    search, _ = make_search(torch.ones(2, 1), [(0, 1, 1), (1, 2, 1)], ["0", "1"], list("012345678"))
    x = np.ones((9, 1))
    x[0] = 2
    found = diagnose(x, search=search)
    assert found.retrieval[0].recall_10 == 1
    assert found.to_json()["retrieval"][0]["method"] == "none"


def test_of_hundreds_with_the_same_cosine_those_with_the_larger_id_come_first():
    rng = np.random.default_rng(0)
    corpus = np.sign(rng.normal(size=(2000, 8))).astype(np.float32) / np.sqrt(8).astype(np.float32)
    order = rng.permutation(2000)
    found = find_top(corpus[:5], corpus, order, 100)
    for query, row in zip(corpus[:5].astype(float), found, strict=True):
        cosines = (corpus.astype(float) @ query).astype(np.float32)
        assert row.tolist() == np.lexsort((-order, -cosines))[:100].tolist()


def test_ids_of_a_frame_are_those_of_its_column():
    x = np.random.default_rng(0).normal(size=(30, 4))
    ids = [f"d{place}" for place in reversed(range(30))]
    frame = pandas.DataFrame(x, columns=["x0", "x1", "x2", "x3"]).assign(id=ids)
    found = isobench.diagnose(frame, queries=x[:10], relevant=[(place, ids[place], 1) for place in range(10)])
    assert found.retrieval[0].mrr_10 == 1
