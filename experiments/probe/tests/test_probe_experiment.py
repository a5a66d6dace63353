"""The probe experiment: what calibrations are fitted on, draws, comparisons, its rows, and a user's mistakes."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import WORDS, check_done, fails, make_config, read_analysis_rows, write_parquet
from scipy import stats

from isobench.analyses.rows import group_rows
from isobench.statistics.seeds import holm
from isobench_papers.probe import probe, recipes, sets


def divide(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("length", ["none", "before", "after", "both"])
@pytest.mark.parametrize("fit", ["train", 4])
def test_methods_are_fitted_on_the_pool_alone(length, fit):
    vectors = np.random.default_rng(0).normal(3, [1, 4, 2], (1, 20, 3))
    subject = SimpleNamespace(cfg=make_config("calibration=center"))
    pool = np.arange(5, 15)
    found = probe.calibrate(subject, torch.tensor(vectors), length, fit, pool)
    given = divide(vectors[0]) if length in ("before", "both") else vectors[0]
    if fit == "train":
        expected = given - given[5:15].mean(0)
        np.testing.assert_allclose(found, divide(expected) if length in ("after", "both") else expected, atol=1e-6)
    elif length in ("none", "before"):
        mean = (given - found)[0]
        sizes = [given[list(own)].mean(0) for own in combinations(range(5, 15), 4)]
        assert np.abs(np.array(sizes) - mean).max(1).min() < 1e-6  # the mean of four vectors of the pool
    changed = vectors.copy()
    changed[0, 15:] += 100  # texts outside the pool change nothing for the others
    again = probe.calibrate(subject, torch.tensor(changed), length, fit, pool)
    np.testing.assert_array_equal(again[:15], found[:15])


def test_pairs_of_texts_become_differences_and_products():
    vectors = np.random.default_rng(0).normal(3, 1, (2, 12, 3))
    subject = SimpleNamespace(cfg=make_config("calibration=center"))
    found = probe.calibrate(subject, torch.tensor(vectors), "none", "train", np.arange(8))
    u, v = vectors - vectors[:, :8].reshape(16, 3).mean(0)  # one mean, of both columns
    np.testing.assert_allclose(found, np.hstack([abs(u - v), u * v]), atol=1e-5)


@pytest.mark.parametrize("classifier", ["logistic", "mteb"])
@pytest.mark.parametrize(("trained", "budget"), [(60, 4), (60, None), (100, 4), (100, None)])
def test_no_draw_is_tested_on_what_it_may_see(classifier, trained, budget):
    labels = np.random.default_rng(0).permutation(np.arange(100) % 2)
    own = probe.LabelledSet([["text"] * 100], labels, ["c0", "c1"], trained)
    draws = probe.plan_draws(own, budget, 3, classifier, "a")
    tested = np.concatenate([draw.test for draw in draws])
    for draw in draws:
        assert not set(draw.test) & (set(draw.train) | set(draw.pool))
        assert set(draw.train) <= set(draw.pool)
        if budget:
            assert np.bincount(own.labels[draw.train]).tolist() == [4, 4]
    if trained == 60:
        assert {tuple(draw.test) for draw in draws} == {tuple(range(60, 100))}
    elif budget is None:
        assert sorted(tested) == list(range(100))  # every example once
    else:
        assert len({tuple(draw.test) for draw in draws}) == 1
        assert len(draws[0].test) == 20
    assert len(draws) == ((10 if trained == 100 else 1) if budget is None else 10 if classifier == "mteb" else 3)


def test_one_pass_over_the_examples_is_a_paired_t_test_of_them():
    labels = np.array([0, 1] * 30)
    ours, theirs = labels.copy(), labels.copy()
    ours[:5] ^= 1
    theirs[3:16] ^= 1
    halves = [np.arange(30), np.arange(30, 60)]
    for parts in ([np.arange(60)], halves):
        draws = [probe.Draw(i, part, part, part) for i, part in enumerate(parts)]
        row = probe.compare_draws(draws, labels, [ours[p] for p in parts], [theirs[p] for p in parts])
        expected = stats.ttest_rel((ours == labels) * 1.0, (theirs == labels) * 1.0)
        low, high = expected.confidence_interval()
        np.testing.assert_allclose([row["change"], row["p"]], [100 * 8 / 60, expected.pvalue])
        np.testing.assert_allclose([row["low"], row["high"]], [100 * low, 100 * high])
        assert row["by"] == "example"


def test_draws_with_the_same_test_examples_are_paired_by_both_or_by_draw():
    rng = np.random.default_rng(0)
    for examples, by in ((400, "draw and example"), (40, "draw")):  # the first has enough
        labels = rng.integers(0, 2, examples)
        test = np.arange(examples)
        draws = [probe.Draw(i, test, test, test) for i in range(5)]
        ours, theirs = (
            [np.where(rng.random(examples) < error, 1 - labels, labels) for _ in draws] for error in (0.2, 0.3)
        )
        row = probe.compare_draws(draws, labels, ours, theirs)
        differences = [100 * ((a == labels).mean() - (b == labels).mean()) for a, b in zip(ours, theirs, strict=True)]
        expected = stats.ttest_1samp(differences, 0)
        assert row["by"] == by
        assert row["change"] == pytest.approx(np.mean(differences))
        if by == "draw":
            np.testing.assert_allclose(row["p"], expected.pvalue)
        else:
            assert row["p"] >= expected.pvalue - 1e-12  # never surer than draws alone


@pytest.mark.slow
def test_the_experiments_rows_follow_from_its_predictions(cli, tiny, outputs, tmp_path):
    rng = np.random.default_rng(0)
    for place, size, classes in (("split/train", 60, "du"), ("split/test", 120, "du"), ("whole/train", 110, "abc")):
        labels = [classes[i % len(classes)] for i in range(size)]
        texts = [f"{WORDS[classes.index(y)]} {' '.join(rng.choice(WORDS, 3))}" for y in labels]
        write_parquet(tmp_path / f"probe/{place}.parquet", {"text": texts, "label": labels})
    check_done(cli(
        "+experiment=probe", "encoder=local", f"encoder.path={tiny}", "encoder.layer=null,0", "tracking=none",
        f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}", f"output_dir={outputs}",
        "calibration=none,center", "analysis.sets=[split,whole]", "analysis.budgets=[4,null]", "analysis.draws=3",
        "analysis.classifiers=[logistic,neighbours,mteb]",
    ))  # fmt: skip
    rows = read_analysis_rows(outputs, "probe")
    predictions, scores = rows["predictions"], rows["scores"]
    per_setting = {"split": 3 + 3 + 10 + 1 * 3, "whole": 3 + 3 + 10 + 10 * 3}  # draws of a budget, then of all labels
    assert len(scores) == len(predictions) == 2 * 2 * sum(per_setting.values())  # layers, methods
    for score, row in zip(scores, predictions, strict=True):
        assert all(score[key] == row[key] for key in (*probe.SETTING, "task", "method", "draw"))
        right = np.mean(np.array(row["true"]) == np.array(row["predicted"]))
        assert score["accuracy"] == pytest.approx(100 * right)
        assert score["test"] == len(row["example"])
    best = max(score["accuracy"] for score in scores if score["task"] == "split")
    assert best > 75  # the first word tells the class
    contrasts = rows["contrasts"]
    assert len(contrasts) == 2 * 2 * 3 * 2  # layers, sets, classifiers, budgets: centring against nothing
    for own in group_rows(contrasts, *probe.SETTING).values():  # the methods and tasks of a table
        assert [row["holm"] for row in own] == pytest.approx(holm([row["p"] for row in own]), nan_ok=True)
    tuned = [row for row in contrasts if row["classifier"] == "logistic"]
    assert all(abs(row["change"]) < 1e-9 for row in tuned)  # a tuned classifier with intercepts does not see a mean


@pytest.mark.parametrize(
    "splits",
    [
        {"train": [0.0, 1.0, 2.5] * 2}, {"train": ["a", "b"] * 2, "test": ["a", "c"]},
        {"train": ["neg", "pos"], "test": ["Neg", "pos"]}, {"train": ["neg", "pos", "Pos\u200b", "neg"]},
    ],
)  # fmt: skip
def test_likely_mistakes_are_refused(tmp_path, splits):
    for split, labels in splits.items():
        columns = {"text": [f"{split} {row}" for row in range(len(labels))], "label": labels}
        write_parquet(tmp_path / f"probe/own/{split}.parquet", columns)
    with fails():
        sets.read_probe_set(str(tmp_path), "own")


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
