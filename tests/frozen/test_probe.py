"""Probes: many logistic regressions at once against scikit-learn, the tuned penalty, draws, neighbours."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from isobench.frozen import logistic, probe


def make_classes(n, d, classes, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    return rng.normal(0, spread, (classes, d))[labels] + rng.normal(0, 1, (n, d)), labels


@pytest.fixture
def exact(monkeypatch):
    monkeypatch.setattr(logistic, "TOLERANCE", 1e-9)
    monkeypatch.setattr(logistic, "MOST_STEPS", 3000)
    monkeypatch.setattr(probe, "PRECISION", "float64")


@pytest.mark.parametrize(("n", "d"), [(30, 4), (12, 20)])
def test_problems_that_are_fitted_together_are_those_of_scikit_learn(exact, n, d):
    classes = 3
    sets = [make_classes(n, d, classes, seed) for seed in (1, 2)]
    weights = np.random.default_rng(3).integers(0, 3, (2, n, 2)).astype(float)
    x, y = np.stack([own[0] for own in sets]), np.stack([own[1] for own in sets])
    strengths = (0.1, 5.0)
    found = list(logistic.fit_path(torch.tensor(x), torch.tensor(y), torch.tensor(weights), strengths, classes))
    for strength, (w, logits) in zip(strengths, found, strict=True):
        for draw in range(2):
            for problem in range(2):
                alone = LogisticRegression(C=strength, tol=1e-10, max_iter=20000, solver="newton-cg")
                alone.fit(x[draw], y[draw], weights[draw, :, problem])
                ours, intercepts = w[draw, :, problem].numpy(), alone.intercept_ - alone.intercept_.mean()
                np.testing.assert_allclose(ours[:d], alone.coef_.T, atol=1e-5)
                np.testing.assert_allclose(ours[d] - ours[d].mean(), intercepts, atol=1e-5)  # up to one constant
                predicted = x[draw] @ ours[:d] + ours[d]
                np.testing.assert_allclose(logits[draw, :, problem].numpy(), predicted, atol=1e-10)


def tune(x, y, test, seed):
    """Tuning as documented, by scikit-learn alone."""
    centred = x - x.mean(0)
    scale = np.sqrt((centred**2).sum(1).mean())
    centred, given = centred / scale, (test - x.mean(0)) / scale
    right = dict.fromkeys(probe.STRENGTHS, 0)
    folds = min(5, np.bincount(y).min())
    factor = 2 if y.max() == 1 else 1  # with two classes scikit-learn penalises the difference of our two vectors
    for fitted, held_out in StratifiedKFold(folds, shuffle=True, random_state=seed).split(y, y):
        for strength in probe.STRENGTHS:
            model = LogisticRegression(C=strength * factor, tol=1e-10, max_iter=20000).fit(centred[fitted], y[fitted])
            right[strength] += (model.predict(centred[held_out]) == y[held_out]).sum()
    best = min(strength for strength in right if right[strength] == max(right.values()))
    return LogisticRegression(C=best * factor, tol=1e-10, max_iter=20000).fit(centred, y).predict(given), best


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "classes"), [(60, 30, 3), (24, 40, 2), (20, 6, 4)])
def test_the_penalty_is_tuned_inside_each_draw(exact, n, d, classes):
    draws = [make_classes(n, d, classes, seed, spread=0.6) for seed in range(5)]
    test = make_classes(100, d, classes, 9)[0]
    predicted, strengths = probe.predict_draws(
        np.stack([x for x, _ in draws]), np.stack([y for _, y in draws]), test, classes, range(5)
    )
    for number, (x, y) in enumerate(draws):
        expected, strength = tune(x, y, test, number)
        assert strengths[number] == strength
        assert (predicted[number] == expected).all()
    assert len(set(strengths)) > 1  # so that a constant would be noticed


def test_neither_scale_nor_place_of_the_vectors_decides():
    x, y = make_classes(40, 5, 2, spread=0.5)
    test = make_classes(60, 5, 2, 7)[0]
    first = probe.predict_tuned(x, y, test)
    moved = probe.predict_tuned(1000 * x + 50, y, 1000 * test + 50)
    assert (first[0] == moved[0]).all()
    assert first[1] == moved[1]


def test_large_folds_are_not_all_fitted_and_draws_are_split_to_save_memory(monkeypatch):
    x, y = make_classes(100, 4, 2)
    monkeypatch.setattr(probe, "ENOUGH", 40)
    masks = probe.mask_folds(y, 0)
    assert masks.shape == (100, 3)  # two folds of 20 have 40 examples, and the last problem has all
    assert (masks == 0).sum(0).tolist() == [20, 20, 0]
    together = probe.predict_draws(np.stack([x] * 4), np.stack([y] * 4), x, 2, range(4))
    monkeypatch.setattr(probe, "LARGEST", 1)
    alone = probe.predict_draws(np.stack([x] * 4), np.stack([y] * 4), x, 2, range(4))
    assert (together[0] == alone[0]).all()
    assert (together[1] == alone[1]).all()


def test_vectors_without_variance_and_classes_of_one_example():
    names, flat, lone = np.array([*"aaaabb"]), np.ones((6, 3)), np.array([[0.0, 1], [0, 2], [5, 0]])
    predicted, chosen = probe.predict_tuned(flat, names, flat)
    assert (predicted.tolist(), chosen) == (["a"] * 6, 0.1)  # the frequent class
    predicted, chosen = probe.predict_tuned(lone, names[2:5], lone)
    assert (predicted.tolist(), chosen) == (["a", "a", "b"], 1.0)  # one example of a class allows no cross-validation
