"""Probes: classifiers of frozen vectors, by the recipes of the benchmarks whose numbers ours stand beside."""

import numpy as np

SEED = 42  # MTEB's, of the draws and of the classifier
DRAWS = 10  # MTEB's number of experiments


def draw_examples(labels: np.ndarray, per_class: int, draws: int = DRAWS) -> list[np.ndarray]:
    """Draw training examples as MTEB does: lists of indices, each with ``per_class`` examples of every class.

    One list of indices is shuffled again before each draw, always by a new generator with the same seed, and the
    first examples of each class are taken. So the order of the training set matters.
    """
    order = np.arange(len(labels))
    drawn = []
    for _ in range(draws):
        np.random.RandomState(SEED).shuffle(order)
        counts: dict[object, int] = {}
        taken = []
        for index in order:
            label = labels[index]
            if counts.get(label, 0) < per_class:
                taken.append(index)
                counts[label] = counts.get(label, 0) + 1
        drawn.append(np.array(taken))
    return drawn


def score_few_shot(
    train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> dict[str, float]:
    """Fit MTEB's classifier on drawn vectors [n, d], and score it on a test set [N, d].

    Returns:
        ``accuracy``, ``f1`` (macro) and ``f1_weighted``; with two classes also ``ap``, the average precision of the
        PREDICTED labels, as MTEB computes it.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, average_precision_score, f1_score

    model = LogisticRegression(random_state=SEED, max_iter=100).fit(train, train_labels)
    predicted = model.predict(test)
    scores = {
        "accuracy": accuracy_score(test_labels, predicted),
        "f1": f1_score(test_labels, predicted, average="macro"),
        "f1_weighted": f1_score(test_labels, predicted, average="weighted"),
    }
    if len(np.unique(train_labels)) == 2:
        scores["ap"] = average_precision_score(test_labels, predicted)
    return {name: float(value) for name, value in scores.items()}


FOLDS = 5  # of the cross-validation that tunes a classifier, fewer if a class has fewer examples
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # values of C that are tried, for vectors whose mean squared norm is 1
NEIGHBOURS = 5


def draw_budget(labels: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Draw ``per_class`` examples of every class at random: labels [N] -> indices, in random order.

    Raises:
        ValueError: a class has fewer examples.
    """
    rng = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    if (short := counts < per_class).any():
        raise ValueError(f"class {classes[short][0]} has {counts[short][0]} examples, fewer than {per_class}")
    drawn = [rng.choice(np.flatnonzero(labels == name), per_class, replace=False) for name in classes]
    return rng.permutation(np.concatenate(drawn))


def split_folds(labels: np.ndarray, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split examples at random into folds with the classes' shares: the indices outside of each fold, and in it."""
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(labels, labels))


def predict_tuned(train: np.ndarray, labels: np.ndarray, test: np.ndarray, seed: int = 0) -> tuple[np.ndarray, float]:
    """Fit a logistic regression on vectors [n, d] whose strength is tuned inside them; predict the classes of others.

    All vectors are first divided by one number, so that the mean squared norm of the training vectors is 1:
    otherwise a method that changes the scale would change what a value of C means. C is the one of ``STRENGTHS`` with
    the highest accuracy in a stratified cross-validation over the training vectors; the smaller one if two tie. A
    class with one example allows no cross-validation: C is then 1. SentEval tunes the L2 penalty of its own
    classifier by the same kind of cross-validation, but trains it by Adam, which stops early.

    Returns:
        The predicted classes, [N], and C.
    """
    from sklearn.linear_model import LogisticRegression

    scale = np.sqrt(np.mean(np.sum(np.square(train), 1)))
    train, test = (np.asarray(x, np.float64) / (scale or 1.0) for x in (train, test))
    folds = min(FOLDS, int(np.unique(labels, return_counts=True)[1].min()))
    chosen = 1.0
    if folds > 1:
        right = dict.fromkeys(STRENGTHS, 0)
        for fitted, held_out in split_folds(labels, folds, seed):
            model = LogisticRegression(max_iter=300, warm_start=True)  # each C starts from the one before
            for strength in STRENGTHS:
                model.set_params(C=strength).fit(train[fitted], labels[fitted])
                right[strength] += int((model.predict(train[held_out]) == labels[held_out]).sum())
        chosen = max(STRENGTHS, key=lambda strength: (right[strength], -strength))
    return LogisticRegression(C=chosen, max_iter=1000).fit(train, labels).predict(test), chosen


def predict_nearest(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Predict the most frequent class of the ``NEIGHBOURS`` training vectors with the largest cosine, [N].

    With fewer training vectors all of them are asked. If classes tie, the first by name is taken.
    """
    from sklearn.neighbors import KNeighborsClassifier

    neighbours = min(NEIGHBOURS, len(train))
    model = KNeighborsClassifier(neighbours, metric="cosine", algorithm="brute").fit(train, labels)
    predicted: np.ndarray = model.predict(test)
    return predicted
