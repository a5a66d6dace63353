"""Complete the config of a task that reads a user's own files (``data.files``), and check these before any run.

What the user names stays: columns (``task.text``, ``task.label``), classes (``task.labels``), metrics. What is not
named is found in the file of the training split, by rules that `complete_config` states. The completed config names
it, so that a found column has the same run key as a named one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, suggest_nearest
from isobench.common.terminal import format_count, print_note
from isobench.config.bounds import check_value
from isobench.config.command_line import write_setting
from isobench.config.schema import REGRESSION_METRICS, Config, Data, Task
from isobench.data.labels import LABEL_NAMES, find_classes, parse_number
from isobench.data.sources import (
    describe_source,
    find_data_source,
    find_own_file,
    list_shares,
    read_examples,
    read_texts,
)
from isobench.data.tables import describe_reading, read_own_file

PAIR_NAMES = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
    ("text1", "text2"),
)  # fmt: skip
TEXT_NAMES = ("text", "sentence", "review", "tweet", "comment", "content")
MOST_LETTERS = 300  # how long the list of classes may be in the line that describes the user's data


def complete_config(cfg: Config) -> Config:
    """Return a config with its task completed from ``data.files``, whose paths become absolute, if there are any.

    The label is the column with one of ``LABEL_NAMES``, or in a file of two columns the one that is not the text.
    The texts are the columns of ``PAIR_NAMES``, else the only one of ``TEXT_NAMES``, else the only column of texts
    that are not numbers. The labels are scores if ``task.label_range`` or a metric of regression is set; else
    `find_classes` decides.
    """
    task, data = cfg.task, cfg.data
    check_value("data", data, Data)
    if not data.files:
        if not task.text:
            raise UserError(
                f"task={task.name} has no columns: name files, 'data.files={{train: FILE, validation: FILE}}', "
                "or set task.text (a task in a YAML of your own can't be called mine)"
            )
        return cfg
    files = _match_files(task, data)
    absolute = replace(data, files=files)
    if task.language:
        return replace(cfg, data=absolute)
    file = Path(files[task.train_split])
    is_regression = task.label_range is not None or any(name in REGRESSION_METRICS for name in task.metrics)
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
        _refuse_rare_classes(completed, absolute)
    return replace(cfg, task=completed, data=absolute)


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


def _match_files(task: Task, data: Data) -> dict[str, Any]:
    """Check that there is a file, or a share of the training file, for each split; make paths absolute."""
    if task.embedded or task.generation:
        raise UserError(f"data.files doesn't go with task={task.name}: choose task=mine, or leave it out")
    shares = list_shares(data)
    files = {
        split: file if split in shares else str(Path(file).expanduser().absolute())
        for split, file in (data.files or {}).items()
    }
    needed = task.read_splits
    if task.train_split in shares:
        raise UserError(f"data.files: {task.train_split} must be a file, of which other splits can take a share")
    for split in needed:
        if split not in files:
            is_train = split == task.train_split
            raise UserError(
                f"data.files has no {split}, which the task reads; it has: {', '.join(files)}: add {split}: FILE, "
                f"{'' if is_train else f'or {split}: 0.2 for a fifth of the training file, '}or name the split "
                f"(task.{'train_split=NAME' if is_train else 'dev_splits=[NAME]'})"
            )
    for split in files:
        if split not in needed:
            used = ", ".join(needed)
            raise UserError(
                f"data.files has {split}, and only {used} are read: set task.test_split={split}, or drop it"
            )
    return files


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


def _read_rows(cfg: Config, split: str) -> list[Any]:
    """Read the texts of a split without surrounding blanks, a row for each example."""
    if cfg.task.language:
        columns = [read_texts(cfg.task, cfg.data, split)]
    else:
        columns = read_examples(cfg.task, cfg.data, split).texts
    return list(zip(*(map(str.strip, column) for column in columns), strict=True))


def _describe_split(cfg: Config, split: str, rows: Sequence[Any], training_rows: set[Any]) -> str:
    task, file = cfg.task, find_own_file(cfg.task, cfg.data, split)
    found = format_count(len(rows), "row") + describe_reading(read_own_file(file, cfg.data.encoding))
    repeated = 0 if split == task.train_split else sum(row in training_rows for row in rows)
    found += f", {repeated:,} of them in {task.train_split} too" if repeated else ""
    return f"{split} {file.name} ({found}{', not scored' if split == task.test_split else ''})"


def _describe_own_data(cfg: Config) -> str:
    task = cfg.task
    rows = {split: _read_rows(cfg, split) for split in cfg.data.files or {}}
    training_rows = set(rows[task.train_split])
    counts = ", ".join(_describe_split(cfg, split, own, training_rows) for split, own in rows.items())
    if task.language:
        return f"task={task.name}: {counts}; text in {task.text[0]}; scored by {task.primary}"
    kind = "scores" if task.labels is None else f"classes {', '.join(task.labels)}"
    if len(kind) > MOST_LETTERS:
        kind = f"{kind[:MOST_LETTERS]} ..."
    return (
        f"task={task.name}: {counts}; text in {', '.join(task.text)}; labels in {task.label}, {kind}; "
        f"scored by {task.primary}"
    )


def print_own_data(configs: Iterable[Config]) -> None:
    """Print on standard error how completed configs read the user's own files, each way once."""
    different = {repr((cfg.task, cfg.data.files, cfg.data.encoding)): cfg for cfg in configs if cfg.data.files}
    for line in dict.fromkeys(map(_describe_own_data, different.values())):
        print_note(line)


def check_files(configs: Iterable[Config], sources: Sequence[str] = ("files",)) -> None:
    """Read every split of the completed configs' data once, to find mistakes before any run starts.

    ``sources``: of `find_data_source`; data from others are not read. Pairs for translation are never read here.
    """
    checked = set()
    for cfg in configs:
        task = cfg.task
        reading = repr((cfg.data, replace(task, train_samples=None, dev_samples=None, metrics=[])))
        if find_data_source(task, cfg.data) in sources and not task.generation and reading not in checked:
            checked.add(reading)
            rows = {split: set(_read_rows(cfg, split)) for split in task.read_splits}
            training_rows = rows.pop(task.train_split)
            for split in [split for split, own in rows.items() if own == training_rows]:
                name = f" ({find_own_file(task, cfg.data, split).name})" if cfg.data.files else ""
                raise UserError(
                    f"{describe_source(task, cfg.data)}: {split}{name} has the same texts as {task.train_split}: "
                    "name a file with other examples"
                )
