"""Corpora to count, and the exponent of their counts."""

import math

import numpy as np
import pytest
from helpers import fails, write_parquet

from isobench.config.schema import Data
from isobench_papers.too_much_in_common.corpus import (
    CORPUS_SOURCES,
    TEXTS_PER_BATCH,
    find_corpus_differences,
    open_corpus,
)
from isobench_papers.too_much_in_common.zipf import zipf_exponents


@pytest.mark.parametrize("s", [0.7, 1.0, 1.6])
def test_zipfs_exponent_is_found_again(s):
    ranks = np.arange(1, 3001)
    counts = 1e9 * ranks**-s
    assert zipf_exponents(counts, 1, 3000) == pytest.approx((s, s), abs=1e-6)
    assert zipf_exponents(counts, 10, 1000) == pytest.approx((s, s), abs=1e-6)
    sampled = np.sort(np.random.default_rng(0).multinomial(10**6, counts / counts.sum()))[::-1]
    likeliest = zipf_exponents(sampled[:1000], 10, 1000)[1]
    assert likeliest == pytest.approx(s, abs=0.05)
    taken, places = sampled[9:1000], np.log(np.arange(10, 1001))
    tried = np.arange(s - 0.2, s + 0.2, 0.001)  # the likelihood itself, at every exponent
    likelihood = [-t * (taken @ places) - taken.sum() * np.log(np.exp(-t * places).sum()) for t in tried]
    assert likeliest == pytest.approx(tried[np.argmax(likelihood)], abs=0.002)


def test_zipfs_exponent_where_there_is_hardly_one():
    assert zipf_exponents(np.full(20, 7), 1, 20) == pytest.approx((0, 0), abs=1e-12)
    assert all(map(math.isnan, zipf_exponents(np.array([5, 4]), 2, 100)))
    for counts, first in ((np.array([1, 2]), 1), (np.array([2, 0]), 1), (np.array([2, 1]), 0)):
        with fails():
            zipf_exponents(counts, first, 2)


def test_a_corpus_from_files(tmp_path):
    texts = [f"text {i}" for i in range(TEXTS_PER_BATCH + 50)]
    write_parquet(tmp_path / "corpus" / "b.parquet", {"text": texts[100:]})
    write_parquet(tmp_path / "corpus" / "a.parquet", {"text": texts[:100]})
    data = Data(root=str(tmp_path))
    whole = open_corpus("wikitext", data)
    assert [text for batch in whole.iter_batches() for text in batch] == texts
    assert [text for batch in whole.iter_batches() for text in batch] == texts  # and again
    assert max(map(len, whole.iter_batches())) <= TEXTS_PER_BATCH
    part = open_corpus("wikitext", data, 120)
    assert [text for batch in part.iter_batches() for text in batch] == texts[:120]
    assert part.text_count == 120
    assert find_corpus_differences("wikitext", part.text_count) == ["corpus wikitext is not the paper's"]
    write_parquet(tmp_path / "cnn_dailymail" / "x.parquet", {"article": ["one", None]})
    broken = open_corpus("cnn_dailymail", data)
    assert find_corpus_differences("cnn_dailymail", broken.text_count) == ["2 of the 311,971 texts of cnn_dailymail"]
    with fails():
        list(broken.iter_batches())
    write_parquet(tmp_path / "cnn_dailymail" / "y.parquet", {"text": ["one"]})
    with fails():
        open_corpus("cnn_dailymail", data)


def test_the_hubs_corpus_is_all_splits_of_a_pinned_commit(monkeypatch):
    import datasets

    requests = []

    def load(*names, **options):
        requests.append((names, options))
        return datasets.DatasetDict(
            train=datasets.Dataset.from_dict({"article": ["a", "b"], "id": [1, 2]}),
            test=datasets.Dataset.from_dict({"article": ["c"], "id": [3]}),
        )

    monkeypatch.setattr(datasets, "load_dataset", load)
    corpus = open_corpus("cnn_dailymail", Data())
    assert [text for batch in corpus.iter_batches() for text in batch] == ["a", "b", "c"]
    source = CORPUS_SOURCES["cnn_dailymail"]
    assert requests == [((source.hub, source.subset), {"revision": source.revision})]
