"""Recipes of the benchmarks whose numbers ours stand beside: draws of training examples, and their classifiers."""

import numpy as np

SEED = 42  # MTEB's, of the draws and of the classifier
DRAWS = 10  # MTEB's number of experiments
NEIGHBOURS = 5


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
    from sklearn.metrics import accuracy_score, average_precision_score, f1_score

    predicted = predict_as_mteb(train, train_labels, test)
    scores = {
        "accuracy": accuracy_score(test_labels, predicted),
        "f1": f1_score(test_labels, predicted, average="macro"),
        "f1_weighted": f1_score(test_labels, predicted, average="weighted"),
    }
    if len(np.unique(train_labels)) == 2:
        scores["ap"] = average_precision_score(test_labels, predicted)
    return {name: float(value) for name, value in scores.items()}


def predict_as_mteb(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Predict the classes of vectors [N, d] by MTEB's classifier, whose C is 1 whatever their scale is: [N]."""
    from sklearn.linear_model import LogisticRegression

    predicted: np.ndarray = LogisticRegression(random_state=SEED, max_iter=100).fit(train, labels).predict(test)
    return predicted


def draw_budget(labels: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Draw ``per_class`` examples of every class at random: labels [N] -> indices, class by class.

    With the same seed a smaller budget's examples are among a larger one's.
    """
    rng = np.random.default_rng(seed)
    own = [rng.permutation(np.flatnonzero(labels == name))[:per_class] for name in np.unique(labels)]
    return np.concatenate(own)


def predict_nearest(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Predict the most frequent class of the ``NEIGHBOURS`` training vectors with the largest cosine, [N].

    With fewer training vectors all of them are asked. If classes tie, the first by name is taken.
    """
    from sklearn.neighbors import KNeighborsClassifier

    neighbours = min(NEIGHBOURS, len(train))
    model = KNeighborsClassifier(neighbours, metric="cosine", algorithm="brute").fit(train, labels)
    predicted: np.ndarray = model.predict(test)
    return predicted
