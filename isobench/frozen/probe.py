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
