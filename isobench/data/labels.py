"""Check the labels of examples, and round scores to classes where a task asks for it."""

from typing import Any

import numpy as np

from isobench.common.errors import UserError
from isobench.config.schema import Task

UNLABELLED = -1  # the label of every example in GLUE's test splits, whose labels are hidden


def check_labels(task: Task, labels: Any, where: str) -> np.ndarray:
    """Return the labels as an array [N]; raise UserError for what is no class or score of the task."""
    if len(labels) == 0:
        raise UserError(f"{where} has no rows")
    try:
        values = np.asarray(labels, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} has labels that are not numbers") from error
    if task.labels is None:
        low, high = task.label_range or (-np.inf, np.inf)
    else:
        low, high = 0, len(task.labels) - 1
    outside = ~((values >= low) & (values <= high))  # NaN counts as outside
    if outside.any():
        raise UserError(
            f"{where} has {outside.sum()} labels outside [{low:g}, {high:g}] (the first: {values[outside][0]:g}); "
            "is it an unlabelled split?"
        )
    if task.labels is not None and np.any(values != np.round(values)):
        raise UserError(f"{where} has labels that are not whole numbers, as the classes of task={task.name} are")
    if task.as_classes is not None:
        return round_to_classes(task, values)
    return values.astype(np.float32) if task.labels is None else values.astype(np.int64)


def round_to_classes(task: Task, values: np.ndarray) -> np.ndarray:
    """Turn scores into classes: round each, half to even, to one of ``task.as_classes`` equally spaced scores."""
    if task.label_range is None:
        raise UserError(f"task.as_classes is for a regression such as stsb; task={task.name} has classes already")
    low, high = task.label_range
    return np.rint((values - low) / (high - low) * (int(task.as_classes or 0) - 1)).astype(np.int64)


def check_labels_differ(task: Task, labels: np.ndarray, where: str) -> None:
    """Raise UserError if all training examples have one score, or a class of ``task.labels`` has no example."""
    if task.labels is None:
        if labels.min() == labels.max():
            raise UserError(f"{where} has the same score, {labels[0]:g}, in every row: there is nothing to learn")
        return
    names = task.labels
    counts = np.bincount(labels, minlength=len(names))
    missing = [name for name, count in zip(names, counts, strict=True) if count == 0]
    if missing:
        raise UserError(
            f"task.labels names {len(names)} classes, and {where} has no example of {', '.join(missing)}: name the "
            "classes that it has"
        )
