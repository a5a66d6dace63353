"""Find in a user's own files what a task of classes or scores leaves open: columns, classes, metrics."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, suggest_nearest
from isobench.config.command_line import write_setting
from isobench.config.schema import Config, Data, Task
from isobench.data.labels import LABEL_NAMES, find_classes, parse_number
from isobench.data.tables import read_own_file
from isobench.kinds.classification.examples import read_examples

PAIR_NAMES = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
    ("text1", "text2"),
)  # fmt: skip
TEXT_NAMES = ("text", "sentence", "review", "tweet", "comment", "content")


def complete_task(cfg: Config, regression_metrics: Sequence[str]) -> Config:
    """Return a config with its task completed from the file of its training split.

    The label is the column with one of ``LABEL_NAMES``, or in a file of two columns the one that is not the text.
    The texts are the columns of ``PAIR_NAMES``, else the only one of ``TEXT_NAMES``, else the only column of texts
    that are not numbers. The labels are scores if ``task.label_range`` or a metric of regression is set; else
    `find_classes` decides.
    """
    task, data, files = cfg.task, cfg.data, cfg.data.files or {}
    file = Path(files[task.train_split])
    is_regression = task.label_range is not None or any(name in regression_metrics for name in task.metrics)
    stat = file.stat() if file.is_file() else None
    label, texts, classes = _find_columns(
        file,
        data.encoding,
        stat and (stat.st_size, stat.st_mtime_ns),
        task.label,
        tuple(task.text),
        classes=task.labels is None and not is_regression,
    )
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
                f"{split} has {'a single' if is_train else 'no'} example of {', '.join(few)}: correct or add labels, "
                f"or name the classes ({write_setting('task.labels', classes)})"
            )


@lru_cache(maxsize=64)  # a sweep completes the task of each of its runs
def _find_columns(
    file: Path, encoding: str | None, _state: object, label: str | None, texts: tuple[str, ...], classes: bool
) -> tuple[str, tuple[str, ...], tuple[str, ...] | None]:
    """Find the columns of labels and texts in a file, and the classes if they are asked for and labels are no scores.

    ``_state`` tells whether the file has changed.
    """
    table = read_own_file(file, encoding)
    label = label or _find_label_column(table, texts, file)
    texts = texts or tuple(_find_text_columns(table, label, file))
    for setting, name in (("task.label", label), *(("task.text", text) for text in texts)):
        if name not in table.column_names:
            raise UserError(f"{file} has no column {name} ({setting}): {suggest_nearest(name, table.column_names)}")
    if label in texts:
        raise UserError(f"{label} can't be both text and label: set task.text and task.label")
    found = find_classes(table[label].to_pylist(), f"{file}, column {label},") if classes else None
    return label, texts, None if found is None else tuple(found)


def _find_label_column(table: Any, texts: Sequence[str], file: Path) -> str:
    columns = table.column_names
    by_name = [name for name in columns if name.lower() in LABEL_NAMES and name not in texts]
    if len(by_name) == 1:
        return by_name[0]
    known = texts or _find_known_texts(columns)
    rest = [name for name in columns if name not in known]
    if not by_name and known and len(rest) == 1:
        return rest[0]
    problem = f"may have its labels in {' or '.join(by_name)}" if by_name else "names no column of labels"
    example = write_setting("task.label", (by_name or columns)[-1])
    raise UserError(f"{file} {problem}: name the column, such as {example}; it has: {', '.join(columns)}")


def _find_text_columns(table: Any, label: str, file: Path) -> list[str]:
    from pyarrow.types import is_large_string, is_string

    if known := _find_known_texts([name for name in table.column_names if name != label]):
        return known
    texts = [field.name for field in table.schema if is_string(field.type) or is_large_string(field.type)]
    others = [
        name
        for name in texts
        if name != label and any(parse_number(value or "0") is None for value in table[name].to_pylist())
    ]
    if len(others) == 1:
        return others
    problem = f"may have its texts in {' or '.join(others)}" if others else "has no column of texts"
    most = max(others or table.column_names, key=lambda name: len(table[name].unique()))
    example = write_setting("task.text", [most])
    raise UserError(
        f"{file} {problem}: name one column or two, such as {example}; it has: {', '.join(table.column_names)}"
    )


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
