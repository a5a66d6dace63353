"""Find in a user's own files what a task of classes or scores leaves open: columns, classes, metrics."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from isobench.common.errors import UserError
from isobench.common.files import cache_until_changed
from isobench.common.terminal import name_some
from isobench.config.schema import Config, Data, Task
from isobench.data.labels import LABEL_NAMES, find_classes
from isobench.data.tables import read_own_file, require_columns
from isobench.kinds.classification.examples import read_examples

PAIR_NAMES = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
    ("text1", "text2"),
)  # fmt: skip
TEXT_NAMES = ("text", "sentence", "review", "tweet", "comment", "content")


def complete_task(cfg: Config, regression_metrics: Sequence[str]) -> Config:
    """Return a config with its task completed from the file of its training split.

    The label is the only column with one of ``LABEL_NAMES``. The texts are the columns of ``PAIR_NAMES``, else the
    only one of ``TEXT_NAMES``. The labels are scores if ``task.label_range`` or a metric of regression is set; else
    `find_classes` decides.
    """
    task, data, files = cfg.task, cfg.data, cfg.data.files or {}
    file = Path(files[task.train_split])
    is_regression = task.label_range is not None or any(name in regression_metrics for name in task.metrics)
    asks_for_classes = task.labels is None and not is_regression
    label, texts, classes = _find_columns(file, data.encoding, task.label, tuple(task.text), asks_for_classes)
    labels = task.labels if classes is None else list(classes)
    metrics = list(task.metrics) or _choose_metrics(labels, task.primary)
    completed = replace(
        task, text=list(texts), label=label, labels=labels, metrics=metrics, primary=task.primary or metrics[0]
    )
    if task.labels is None and labels is not None:
        _refuse_rare_classes(completed, data)
    return replace(cfg, task=completed)


def _refuse_rare_classes(task: Task, data: Data) -> None:
    """Raise UserError if a class has a single training example, or none in a dev split."""
    import numpy as np

    classes = task.labels or []
    labels = {split: read_examples(task, data, split).labels for split in (task.train_split, *task.dev_splits)}
    for split, numbers in labels.items():
        counts, is_train = np.bincount(numbers, minlength=len(classes)), split == task.train_split
        few = [name for name, count in zip(classes, counts, strict=True) if count <= is_train]
        if few:
            raise UserError(
                f"data.files: {split} has {'a single' if is_train else 'no'} example of {name_some(few)}: correct or "
                "add labels, or name the classes (task.labels=[NAME,...])"
            )


@cache_until_changed  # a sweep completes the task of each of its runs
def _find_columns(
    file: Path, encoding: str | None, label: str | None, texts: tuple[str, ...], classes: bool
) -> tuple[str, tuple[str, ...], tuple[str, ...] | None]:
    """Find a file's columns of labels and texts, and the classes if they are asked for and labels are no scores."""
    table = read_own_file(file, encoding)
    names = table.column_names
    labels = [label] if label else [name for name in names if name.lower() in LABEL_NAMES and name not in texts]
    texts = texts or tuple(_find_known_texts([name for name in names if name not in labels]))
    if len(labels) != 1 or not texts:
        raise UserError(
            f"{file}: name the columns of texts and labels, task.text=[COLUMN] or [COLUMN,COLUMN] and "
            f"task.label=COLUMN; it has: {', '.join(names)}"
        )
    require_columns(table.schema, (*texts, *labels), str(file))
    (label,) = labels
    if label in texts:
        raise UserError(f"{label} can't be both text and label: set task.text and task.label")
    found = find_classes(table[label].to_pylist(), f"{file}, column {label},") if classes else None
    return label, texts, None if found is None else tuple(found)


def _find_known_texts(columns: Sequence[str]) -> list[str]:
    """Return the columns that have the names of a pair of texts, or the only one with a name of a text; else none."""
    for pair in PAIR_NAMES:
        found = [name for name in columns if name.lower() in pair]
        if sorted(map(str.lower, found)) == sorted(pair):
            return sorted(found, key=lambda name: pair.index(name.lower()))
    single = [name for name in columns if name.lower() in TEXT_NAMES]
    return single if len(single) == 1 else []


def _choose_metrics(labels: Sequence[str] | None, primary: str) -> list[str]:
    if labels is None:
        suitable = ["pearson", "spearman"]
    else:
        suitable = ["accuracy", "f1", "matthews"] if len(labels) == 2 else ["accuracy", "matthews"]
    return list(dict.fromkeys([*([primary] if primary else []), *suitable]))
