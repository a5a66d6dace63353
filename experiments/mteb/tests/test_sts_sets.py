"""Sentence pairs with human scores: from a folder and from the hub, and what is said of those that are missing."""

import math

import pytest
from helpers import fails, write_parquet, write_sts

from isobench.config.schema import Data
from isobench.data import hub
from isobench_papers.mteb import sts_sets as sts


def test_sets_come_from_a_folder_in_the_order_of_the_file(tmp_path):
    columns = {"sentence1": ["a b", "c"], "sentence2": ["d", "e f"], "score": [1, 4.5], "source": ["x", "x"]}
    write_sts(tmp_path, sts13=columns)
    pairs = sts.load_sentence_pairs(Data(root=str(tmp_path)), ["sts13", "stsb"])
    assert list(pairs) == ["sts13", "stsb"]
    own = pairs["sts13"]
    assert (own.first, own.second, own.scores.tolist(), len(own)) == (["a b", "c"], ["d", "e f"], [1.0, 4.5], 2)


@pytest.mark.parametrize("score", [None, ["much"], ["1_0"], [[1.0]], [math.inf], [2.5] * 2, []])
def test_a_file_that_is_not_a_set_is_an_error(tmp_path, score):
    count = 1 if score is None else len(score)
    columns = {"sentence1": ["a"] * count, "sentence2": ["b"] * count} | ({} if score is None else {"score": score})
    write_parquet(tmp_path / "sts" / "sts14.parquet", columns)
    with fails():
        sts.load_sentence_pairs(Data(root=str(tmp_path)), ["sts14"])


def test_without_a_folder_the_hub_gives_the_pinned_test_sets(monkeypatch):
    asked = []

    def load(name, subset, revision, split, setting, advice):
        asked.append((name, subset, revision, split))
        return {"sentence1": ["a"], "sentence2": ["b"], "score": [3.0]}

    monkeypatch.setattr(hub, "load_hub_dataset", load)
    pairs = sts.load_sentence_pairs(Data(), sts.SETS)
    assert all((own.first, own.second, own.scores.tolist()) == (["a"], ["b"], [3.0]) for own in pairs.values())
    assert asked == [(own.hub, None, own.revision, own.split) for own in sts.SETS.values()]
    assert all(len(revision) == 40 for _, _, revision, _ in asked)
