"""Sets of labelled texts, budgets of training examples, and the vote of neighbours."""

import numpy as np
import pytest
from helpers import fails, write_parquet

from isobench_papers.probe import recipes, sets


def write_set(root, **splits):
    for split, labels in splits.items():
        columns = {"text": [f"{split} {row}" for row in range(len(labels))], "label": labels}
        write_parquet(root / f"probe/own/{split}.parquet", columns)


@pytest.mark.parametrize(
    "splits",
    [
        {"train": [0, 1, -1] * 2}, {"train": [0.0, 1.0, 2.5] * 2}, {"train": ["a", "b"] * 2, "test": ["a", "c"]},
        {"train": ["a", "b"] * 2, "test": [0, 1]}, {"train": ["not a", "not_a", "b"] * 2},
        {"train": ["a"] * 4, "test": ["a"]}, {"train": ["neg", "pos"], "test": ["Neg", "pos"]},
        {"train": ["neg", "pos"], "dev": ["neg", "pos"]}, {"train": ["neg", "pos", "Pos", "neg"]},
        {"train": ["neg", "pos", "Pos\u200b", "neg"]},
    ],
)  # fmt: skip
def test_likely_mistakes_are_refused(tmp_path, splits):
    write_set(tmp_path, **splits)
    with fails():
        sets.read_probe_set(str(tmp_path), "own")


def test_what_is_odd_but_no_mistake_is_said(tmp_path, capsys):
    write_set(tmp_path, train=["pos", "neg", "pos ", "neg", "pso"], test=["pos", "pso"])
    columns = {"text": ["train 0", "d"], "label": ["pos", "pso"]}
    write_parquet(tmp_path / "probe/own/test.parquet", columns)
    assert set(sets.read_probe_set(str(tmp_path), "own")[0].labels) == {"neg", "pos", "pso"}
    said = capsys.readouterr().err
    for text in ("1 of 2 rows in test are in train too", "single example of pso", "test has no example of neg"):
        assert text in said


def test_budgets_are_drawn_by_class_and_nested():
    labels = np.array([0] * 10 + [1] * 6 + [2] * 8)
    small, large = (set(recipes.draw_budget(labels, size, seed=4)) for size in (2, 5))
    assert small < large
    assert np.bincount(labels[sorted(large)]).tolist() == [5, 5, 5]
    assert set(recipes.draw_budget(labels, 5, seed=5)) != large


def test_neighbours_vote_by_cosine():
    rng = np.random.default_rng(0)
    train, test, labels = rng.normal(size=(30, 3)), rng.normal(size=(20, 3)), rng.integers(0, 2, 30)
    of_test, of_train = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (test, train))
    votes = labels[np.argsort(-of_test @ of_train.T, axis=1)[:, :5]]
    assert (recipes.predict_nearest(train, labels, test) == (votes.mean(1) > 0.5)).all()
    assert (recipes.predict_nearest(train[:3], np.array([1, 1, 0]), test) == 1).all()  # all three are asked
