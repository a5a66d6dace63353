"""Probes: logistic regressions on frozen vectors, whose penalty is tuned inside of each training set."""

from collections.abc import Sequence

import numpy as np

FOLDS = 5  # of the cross-validation that tunes a classifier, fewer if a class has fewer examples
ENOUGH = 1000  # examples that a strength is judged on: where fewer folds have them, the other folds are not fitted
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # values of C, for vectors whose variances sum to 1
PRECISION = "float32"  # of the fits, twice as fast as float64; what comes before and after is float64
LARGEST = 2_000_000  # logits that are computed at once, to save memory


def split_folds(labels: np.ndarray, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split examples at random into folds with the classes' shares: the indices outside of each fold, and in it."""
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(labels, labels))


def predict_tuned(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit a logistic regression on vectors [n, d] and predict the classes of others: one draw of `predict_draws`."""
    classes, numbers = np.unique(labels, return_inverse=True)
    predicted, chosen = predict_draws(train[None], numbers[None], test, len(classes), [0])
    return classes[predicted[0]], float(chosen[0])


def predict_draws(
    train: np.ndarray, labels: np.ndarray, test: np.ndarray, classes: int, seeds: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Fit a logistic regression to each of D draws, its L2 penalty tuned inside the draw, and predict a test set.

    The vectors of a draw are centred and divided by one number, so that their variances sum to 1: otherwise a method
    that changes the scale would change what a value of C means. C is the one of ``STRENGTHS`` that is right most
    often on held-out examples of the draw, in a stratified cross-validation with ``FOLDS`` folds, and the smaller one
    if two tie. If a fold is large, only as many folds are fitted as have ``ENOUGH`` examples. A class with one
    example allows no cross-validation: C is then 1.

    Args:
        train: vectors, [D, n, d].
        labels: numbers of their classes from 0, [D, n].
        test: vectors, [N, d].
        classes: how many classes there are.
        seeds: of the folds of each draw.

    Returns:
        The predicted classes, [D, N], and C, [D].
    """
    masks = np.stack([mask_folds(own, seed) for own, seed in zip(labels, seeds, strict=True)])  # [D, n, M]
    at_once = max(1, LARGEST // (masks[0].size * classes))
    parts = [slice(start, start + at_once) for start in range(0, len(train), at_once)]
    outcomes = [_predict_part(train[part], labels[part], masks[part], test, classes) for part in parts]
    predictions, chosen = zip(*outcomes, strict=True)
    return np.concatenate(predictions), np.concatenate(chosen)


def _predict_part(
    train: np.ndarray, labels: np.ndarray, masks: np.ndarray, test: np.ndarray, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Do what `predict_draws` does for as many draws as fit into memory; ``masks`` are those of `mask_folds`."""
    import torch

    from isobench.frozen.logistic import find_basis, fit_path

    x, y, weights = (torch.from_numpy(np.ascontiguousarray(a)) for a in (train, labels, masks))
    x = x.double()
    mean = x.mean(1, keepdim=True)
    x = x - mean
    scale = x.square().sum(2).mean(1).sqrt()[:, None, None]  # the root of the variances' sum
    x = x / torch.where(scale > 0, scale, 1.0)
    basis = find_basis(x)  # [D, d, r]
    right, models = [], []  # for each strength: how many held-out examples are right, [D]; the model of all examples
    folds = weights.shape[2] - 1
    strengths = STRENGTHS if folds else (1.0,)
    dtype = getattr(torch, PRECISION)
    projected, weights = (x @ basis).to(dtype), weights.to(dtype)
    for w, logits in fit_path(projected, y, weights, strengths, classes):
        correct = logits[:, :, :folds].argmax(3) == y[:, :, None]
        right.append((correct & (weights[:, :, :folds] == 0)).sum((1, 2)))
        models.append(w[:, :, -1])
    best = torch.stack(right).max(0).values
    chosen = (torch.stack(right) == best).double().argmax(0)  # the first one
    w = torch.stack(models)[chosen, torch.arange(len(x))].double()  # [D, r + 1, K]
    slopes = (basis / torch.where(scale > 0, scale, 1.0)) @ w[:, :-1]  # [D, d, K], for vectors as they were given
    intercepts = w[:, -1:] - mean @ slopes
    given = torch.from_numpy(np.asarray(test, np.float64))
    predicted = torch.stack([(given @ a + b).argmax(1) for a, b in zip(slopes, intercepts, strict=True)])
    return predicted.numpy(), np.array(strengths)[chosen.numpy()]


def mask_folds(labels: np.ndarray, seed: int) -> np.ndarray:
    """Say which examples each problem of a draw is fitted on: [n, folds + 1], the last problem's are all."""
    counts = np.bincount(labels)
    folds = min(FOLDS, int(counts[counts > 0].min()))
    fitted = min(folds, -(-ENOUGH * folds // len(labels))) if folds > 1 else 0
    masks = np.ones((len(labels), fitted + 1))
    if fitted:
        for place, (_, held_out) in enumerate(split_folds(labels, folds, seed)[:fitted]):
            masks[held_out, place] = 0
    return masks
