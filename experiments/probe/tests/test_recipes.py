"""Sets of labelled texts, budgets of training examples, and the vote of neighbours."""

import numpy as np
import pytest
from helpers import write_parquet

from isobench.common.errors import UserError
from isobench_papers.probe import recipes, sets


def test_the_test_set_of_a_probe_may_repeat_texts_but_not_misspell_classes(tmp_path, capsys):
    write_parquet(tmp_path / "probe/own/train.parquet", {"text": ["a", "b", "c"], "label": ["neg", "pos", "pos"]})
    test = {"text": ["a ", "d"], "label": ["neg", "pos"]}
    write_parquet(tmp_path / "probe/own/test.parquet", test)
    sets.read_probe_set(str(tmp_path), "own")
    assert "1 of 2 rows in test are in train too" in capsys.readouterr().err
    write_parquet(tmp_path / "probe/single/train.parquet", {"text": ["a", "b", "a "], "label": ["neg", "pos", "neg"]})
    sets.read_probe_set(str(tmp_path), "single")
    assert "1 of 3 texts" in capsys.readouterr().err
    write_parquet(tmp_path / "probe/own/test.parquet", test | {"label": ["Neg", "pos"]})
    with pytest.raises(UserError, match="own has the classes Neg, neg, which differ"):
        sets.read_probe_set(str(tmp_path), "own")


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        ([0, 1, -1] * 2, None, "-1 beside 0"),
        ([0.0, 1.0, 2.5] * 2, None, "2.5"),
        (["a", "b"] * 2, ["a", "c"], "no example of c"),
        (["a", "b"] * 2, [0, 1], "numbers"),
        (["not a", "not_a", "b"] * 2, None, "not a, not_a"),
        (["a"] * 4, ["a"], "a single class"),
    ],
)
def test_classes_are_those_of_the_training_split_and_no_likely_mistakes(tmp_path, train, test, said):
    for split, labels in (("train", train), ("test", test)):
        if labels:
            columns = {"text": [f"{split} {row}" for row in range(len(labels))], "label": labels}
            write_parquet(tmp_path / f"probe/own/{split}.parquet", columns)
    with pytest.raises(UserError, match=said):
        sets.read_probe_set(str(tmp_path), "own")


def test_a_class_of_one_example_is_said(tmp_path, capsys):
    write_parquet(tmp_path / "probe/own/train.parquet", {"text": [*"abcde"], "label": ["pos", "neg"] * 2 + ["pso"]})
    sets.read_probe_set(str(tmp_path), "own")
    assert "single example of pso" in capsys.readouterr().err


def test_a_split_under_another_name_is_refused_and_a_class_without_a_test_example_is_said(tmp_path, capsys):
    columns = {"text": [*"abcd"], "label": ["pos", "neg"] * 2}
    write_parquet(tmp_path / "probe/own/train.parquet", columns)
    write_parquet(tmp_path / "probe/own/dev.parquet", columns)
    with pytest.raises(UserError, match="dev"):
        sets.read_probe_set(str(tmp_path), "own")
    write_parquet(tmp_path / "probe/own/test.parquet", {"text": ["e", "f"], "label": ["pos", "pos"]})
    sets.read_probe_set(str(tmp_path), "own")
    assert "test has no example of neg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("odd", "said"), [("Pos", "Pos, pos, which differ"), ("pos ", None), ("Pos\u200b", "differ")]
)
def test_classes_of_one_split_are_checked_as_those_of_two(tmp_path, odd, said):
    columns = {"text": [*"abcd"], "label": ["neg", "pos", odd, "neg"]}
    write_parquet(tmp_path / "probe/own/train.parquet", columns)
    if said:
        with pytest.raises(UserError, match=said):
            sets.read_probe_set(str(tmp_path), "own")
    else:
        assert set(sets.read_probe_set(str(tmp_path), "own")[0].labels) == {"neg", "pos"}


def test_budgets_are_drawn_by_class_and_nested():
    labels = np.array([0] * 10 + [1] * 6 + [2] * 8)
    small, large = (set(recipes.draw_budget(labels, size, seed=4)) for size in (2, 5))
    assert small < large
    assert np.bincount(labels[sorted(large)]).tolist() == [5, 5, 5]
    assert set(recipes.draw_budget(labels, 5, seed=5)) != large


def test_neighbours_vote_by_cosine():
    rng = np.random.default_rng(0)
    train, test, labels = rng.normal(size=(30, 3)), rng.normal(size=(20, 3)), rng.integers(0, 2, 30)
    cosine = (test / np.linalg.norm(test, axis=1, keepdims=True)) @ (
        train / np.linalg.norm(train, axis=1, keepdims=True)
    ).T
    votes = labels[np.argsort(-cosine, axis=1)[:, :5]]
    assert (recipes.predict_nearest(train, labels, test) == (votes.mean(1) > 0.5)).all()
    assert (recipes.predict_nearest(train[:3], np.array([1, 1, 0]), test) == 1).all()  # all three are asked
