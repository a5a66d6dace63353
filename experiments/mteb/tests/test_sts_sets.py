"""Sentence pairs with human scores: from a folder and from the hub, and what is said of those that are missing."""

import math

import pytest
from helpers import write_parquet, write_sts

from isobench.common.errors import UserError
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


def test_all_missing_files_are_named_in_one_line(tmp_path):
    write_sts(tmp_path)
    for name in ("sts12", "stsb"):
        (tmp_path / sts.SETS[name].files[0]).unlink()
    with pytest.raises(UserError, match=r"lacks sts/sts12\.parquet, sts/stsb_test_labelled\.parquet \(col") as error:
        sts.load_sentence_pairs(Data(root=str(tmp_path)), sts.SETS)
    assert "\n" not in str(error.value)
    assert list(sts.load_sentence_pairs(Data(root=str(tmp_path)), ["sts16"])) == [
        "sts16"
    ]  # the others are not needed


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sentence1": ["a"], "sentence2": ["b"]}, "lacks the column score"),
        ({"sentence1": ["a"], "sentence2": ["b"], "score": ["much"]}, "score that is not a finite number"),
        ({"sentence1": ["a"], "sentence2": ["b"], "score": ["1_0"]}, "score that is not a finite number: 1_0"),
        ({"sentence1": ["a"], "sentence2": ["b"], "score": [[1.0]]}, "score that is not a finite number"),
        ({"sentence1": ["a"] * 2, "sentence2": ["b"] * 2, "score": [2.5] * 2}, "the same score, 2.5, in every row"),
        ({"sentence1": ["a"], "sentence2": ["b"], "score": [math.inf]}, "score that is not a finite number"),
        ({"sentence1": ["a"], "sentence2": [None], "score": [1.0]}, "no text in the column sentence, row 1"),
        ({"sentence1": [], "sentence2": [], "score": []}, "no row with a text"),
    ],
)
def test_a_file_that_is_not_a_set_is_an_error(tmp_path, columns, message):
    file = tmp_path / "sts" / "sts14.parquet"
    write_parquet(file, columns)
    with pytest.raises(UserError, match=f"sts14.parquet.* {message}"):
        sts.load_sentence_pairs(Data(root=str(tmp_path)), ["sts14"])
    file.write_text("sentence1,sentence2,score")
    with pytest.raises(UserError, match=r"sts14\.parquet can't be read as Parquet"):
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
