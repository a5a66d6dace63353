"""The study of searches: its question pairs, bootstrap and verdicts, and a search from end to end."""

import numpy as np
import pytest
from helpers import check_done, read_analysis_rows, write_parquet

from isobench_papers.retrieval import search

METHODS = ["none", "center", "all-but-the-top 1", "all-but-the-top 7", "soft ZCA", "ZCA"]


def test_a_query_is_a_first_question_with_a_duplicate_that_is_no_document():
    first, second = ["a", "b", "c", "a", "e"], ["b", "x", "y", "z", "w"]
    found = search.make_question_search(first, second, [1, 1, 0, 1, 1], pairs=4)
    assert list(found.documents.values()) == ["b", "x", "y", "z"]
    assert list(found.queries.values()) == ["a"]  # b is a document, c has no duplicate, e is beyond the fourth pair
    relevant = {(found.queries[query], found.documents[document]) for query, document, _ in found.judgements}
    assert relevant == {("a", "b"), ("a", "z")}


def test_the_interval_is_that_of_the_normal_approximation_and_p_has_its_size():
    changes = np.random.default_rng(1).normal(0.02, 0.1, 400)
    mean, low, high, p = search.compare(changes)
    error = changes.std() / 20
    assert mean == pytest.approx(changes.mean())
    assert (low, high) == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.1 * error)
    from scipy.stats import norm

    assert p == pytest.approx(2 * norm.sf(mean / error), rel=0.5, abs=2e-3)
    assert search.compare(np.zeros(9))[3] == 1.0


def make_rows(encoder, **changes):
    """Rows of one encoder; changes: method -> change, half-width of its interval, Holm's p."""
    about = {"encoder": encoder, "set": "qqp"}
    return [
        {**about, "method": name.replace("_", " "), "change": c, "low": c - w, "high": c + w, "p_holm": p}
        for name, (c, w, p) in changes.items()
    ]


def test_a_statement_is_judged_by_the_sign_after_holm_and_a_small_change_by_its_interval():
    rows = make_rows("glove", soft_ZCA=(0.05, 0.01, 0.01), **{"all-but-the-top_1": (-0.05, 0.01, 0.01)})
    rows += make_rows(
        "minilm", ZCA=(-0.05, 0.1, 0.3), center=(0.001, 0.002, 1.0), **{"all-but-the-top_1": (0.03, 0.01, 0.02)}
    )
    verdicts = {(row["encoder"], row["method"]): row["verdict"] for row in search.judge(rows)}
    assert verdicts == {
        ("glove", "soft ZCA"): "supported", ("glove", "all-but-the-top 1"): "refuted",
        ("minilm", "ZCA"): "can't tell", ("minilm", "center"): "supported",
        ("minilm", "all-but-the-top 1"): "refuted",
    }  # fmt: skip


@pytest.mark.slow
def test_a_search_from_end_to_end(cli, cache, tmp_path):
    """A document that repeats its query is found first with every method."""
    folder = tmp_path / "retrieval" / "dbpedia_sample"
    texts = [f"{animal} {place}" for animal in ("cat", "whale", "ant") for place in ("house", "sea", "wood", "hill")]
    ids = [f"d{number}" for number in range(12)]
    write_parquet(folder / "corpus.parquet", {"id": ids, "title": [""] * 12, "text": texts})
    write_parquet(folder / "queries.parquet", {"id": ["q0", "q1", "q2"], "text": [texts[1], texts[6], "moon"]})
    judged = {"query": ["q0", "q1", "q2"], "document": ["d1", "d6", "d2"], "relevance": [2, 1, 0]}
    write_parquet(folder / "qrels.parquet", judged)
    settings = ["encoder=minilm", "calibration=none,center", "analysis.sets=[dbpedia]", f"data.root={tmp_path}"]
    settings += [f"output_dir={tmp_path / 'o'}", f"data.cache={cache}", "tracking=none"]
    check_done(cli("+experiment=retrieval", *settings))
    rows = read_analysis_rows(tmp_path / "o", "retrieval")
    assert [(row["method"], row["queries"], row["ndcg_10"], row["mrr_10"]) for row in rows["effects"]] == [
        ("none", 2, 1.0, 1.0), ("center", 2, 1.0, 1.0),
    ]  # fmt: skip
    assert len(rows["queries"]) == 4
