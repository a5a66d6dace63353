"""Complete the config of a task that reads a user's own files (``data.files``), and check these before any run.

What the user names stays: columns (``task.text``, ``task.label``), classes (``task.labels``), metrics. What is not
named is found in the file of the training split, by rules that `complete_task` states. The completed config names it,
so that a found column has the same run key as a named one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from isobench.common.errors import UserError, suggest_nearest
from isobench.common.terminal import format_count, print_note
from isobench.config.bounds import check_value, read_hints
from isobench.config.schema import Config, Data, Task
from isobench.config.schema_task import REGRESSION_METRICS
from isobench.data.labels import find_classes, parse_number
from isobench.data.sources import fingerprint_own_file, read_examples
from isobench.data.tables import read_own_file

LABEL_NAMES = ("label", "labels", "class", "category", "target", "score", "sentiment", "rating", "stars")
PAIR_NAMES = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
    ("text1", "text2"),
)  # fmt: skip
TEXT_NAMES = ("text", "sentence", "review", "tweet", "comment", "content")
MOST_LETTERS = 300  # how long the list of classes may be in the line that describes the user's data


@dataclass(frozen=True)
class Survey:
    """Hold what is known of a file without its task.

    ``columns``: the names. ``texts``: the columns of texts that are not all numbers. ``rows``: how many.
    """

    columns: tuple[str, ...]
    texts: tuple[str, ...]
    rows: int


def complete_config(cfg: Config) -> Config:
    """Return a config with its task completed from ``data.files``; without these, the config itself.

    Raises:
        UserError: as `complete_task`; or the task has no columns of its own and there are no files.
    """
    check_value("data.files", cfg.data.files, read_hints(Data)["files"])
    if not cfg.data.files:
        if not cfg.task.text:
            raise UserError(
                f"task={cfg.task.name} has no columns: name files, 'data.files={{train: FILE, validation: FILE}}', "
                "or set task.text (a task in a YAML of your own can't be called mine)"
            )
        return cfg
    task, data = complete_task(cfg.task, cfg.data)
    return replace(cfg, task=task, data=data)


def complete_task(task: Task, data: Data) -> tuple[Task, Data]:
    """Complete a task from the files of ``data.files``, whose paths become absolute.

    The label is the column with one of ``LABEL_NAMES``, or in a file of two columns the one that is not the text.
    The texts are the columns of ``PAIR_NAMES``, else the only one of ``TEXT_NAMES``, else the only column of texts
    that are not numbers. The labels are scores if ``task.label_range`` or a metric of regression is set; else
    `find_classes` decides.

    Raises:
        UserError: a file is missing or damaged, splits and files don't match, or a column can't be found.
    """
    files = check_files(task, data)
    where = files[task.train_split]
    survey = survey_file(where)
    label = task.label or find_label_column(survey, task.text, where)
    texts = list(task.text) or find_text_columns(survey, label, where)
    for setting, name in (("task.label", label), *(("task.text", text) for text in texts)):
        if name not in survey.columns:
            raise UserError(f"{where} has no column {name} ({setting}): {suggest_nearest(name, survey.columns)}")
    if label in texts:
        raise UserError(f"{label} can't be both text and label: set task.text and task.label")
    labels = task.labels
    is_regression = task.label_range is not None or any(name in REGRESSION_METRICS for name in task.metrics)
    if labels is None and not is_regression:
        labels = read_classes(where, label)
    metrics = list(task.metrics) or choose_metrics(labels, task.primary)
    completed = replace(
        task, text=texts, label=label, labels=labels, metrics=metrics, primary=task.primary or metrics[0]
    )
    return completed, replace(data, files={split: str(file) for split, file in files.items()})


def check_files(task: Task, data: Data) -> dict[str, Path]:
    """Return the file of every split of ``data.files``, with its absolute path.

    Raises:
        UserError: the task reads no such files, a split that it needs has none, or a file belongs to no split.
    """
    if task.embedded or task.generation:
        raise UserError(f"data.files doesn't go with task={task.name}: choose task=mine, or leave it out")
    files = {split: Path(file).expanduser().absolute() for split, file in (data.files or {}).items()}
    needed = task.read_splits
    for split in needed:
        if split not in files:
            raise UserError(
                f"data.files has no {split}, which the task reads; it has: {', '.join(files)}: add {split}: FILE, or "
                f"name the split (task.{'train_split=NAME' if split == task.train_split else 'dev_splits=[NAME]'})"
            )
    for split in files:
        if split not in needed:
            used = ", ".join(needed)
            raise UserError(
                f"data.files has {split}, and only {used} are read: set task.test_split={split}, or drop it"
            )
    return files


def survey_file(file: Path) -> Survey:
    """Survey a file; one that has not changed since the last call is not read again."""
    stat = file.stat() if file.is_file() else None
    return _survey(file, stat and (stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=64)
def _survey(file: Path, _state: object) -> Survey:
    from pyarrow.types import is_large_string, is_string

    table = read_own_file(file)
    texts = [field.name for field in table.schema if is_string(field.type) or is_large_string(field.type)]
    plain = [name for name in texts if any(parse_number(value or "0") is None for value in table[name].to_pylist())]
    return Survey(tuple(table.column_names), tuple(plain), table.num_rows)


def read_classes(file: Path, label: str) -> list[str] | None:
    """Return the classes in a file's column of labels, as `find_classes` does."""
    stat = file.stat()
    classes = _read_classes(file, label, (stat.st_size, stat.st_mtime_ns))
    return None if classes is None else list(classes)


@lru_cache(maxsize=64)
def _read_classes(file: Path, label: str, _state: object) -> tuple[str, ...] | None:
    where = f"{file}, column {label},"
    classes = find_classes(read_own_file(file)[label].to_pylist(), where)
    return None if classes is None else tuple(classes)


def find_label_column(survey: Survey, texts: Sequence[str], file: Path) -> str:
    """Return the name of the column of labels; UserError if none or several may be it."""
    by_name = [name for name in survey.columns if name.lower() in LABEL_NAMES and name not in texts]
    if len(by_name) == 1:
        return by_name[0]
    known = texts or find_known_texts(survey.columns)
    rest = [name for name in survey.columns if name not in known]
    if not by_name and known and len(rest) == 1:
        return rest[0]
    problem = f"may have its labels in {' or '.join(by_name)}" if by_name else "names no column of labels"
    raise UserError(f"{file} {problem}: set task.label=COLUMN; it has: {', '.join(survey.columns)}")


def find_known_texts(columns: Sequence[str]) -> list[str]:
    """Return the columns that have the names of a pair of texts, or the only one with a name of a text; else none."""
    by_name = {name.lower(): name for name in columns}
    for pair in PAIR_NAMES:
        if set(pair) <= by_name.keys():
            return [by_name[name] for name in pair]
    single = [by_name[name] for name in TEXT_NAMES if name in by_name]
    return single if len(single) == 1 else []


def find_text_columns(survey: Survey, label: str, file: Path) -> list[str]:
    """Return the names of the one or two columns of texts; UserError if it is not clear which they are."""
    if known := find_known_texts([name for name in survey.columns if name != label]):
        return known
    others = [name for name in survey.texts if name != label]
    if len(others) == 1:
        return others
    problem = f"may have its texts in {' or '.join(others)}" if others else "has no column of texts"
    raise UserError(
        f"{file} {problem}: set task.text=[COLUMN] or [COLUMN,COLUMN]; it has: {', '.join(survey.columns)}"
    )


def choose_metrics(labels: Sequence[str] | None, primary: str) -> list[str]:
    """Choose the metrics of a task that names none: ``primary`` if it is set, then those that suit the labels."""
    if labels is None:
        suitable = ["pearson", "spearman"]
    else:
        suitable = ["accuracy", "f1", "matthews"] if len(labels) == 2 else ["accuracy", "matthews"]
    return list(dict.fromkeys([*([primary] if primary else []), *suitable]))


def describe_own_data(cfg: Config) -> str:
    """Say in one line how a completed config reads the user's own files."""
    task = cfg.task
    counts = ", ".join(
        f"{split} {Path(file).name} ({format_count(survey_file(Path(file)).rows, 'row')}"
        f"{', not scored' if split == task.test_split else ''})"
        for split, file in (cfg.data.files or {}).items()
    )
    kind = "scores" if task.labels is None else f"classes {', '.join(task.labels)}"
    if len(kind) > MOST_LETTERS:
        kind = f"{kind[:MOST_LETTERS]} ..."
    return (
        f"task={task.name}: {counts}; text in {', '.join(task.text)}; labels in {task.label}, {kind}; "
        f"scored by {task.primary}"
    )


def print_own_data(configs: Iterable[Config]) -> None:
    """Print on standard error how completed configs read the user's own files, each way once."""
    parts = {(id(cfg.task), id(cfg.data)): cfg for cfg in configs if cfg.data.files}
    for line in dict.fromkeys(map(describe_own_data, parts.values())):
        print_note(line)


def check_own_files(configs: Iterable[Config]) -> None:
    """Read every split of the completed configs' ``data.files`` once, as their runs will; others pass.

    Raises:
        UserError: a file lacks a column, a text or a label, or has a label that the task doesn't have; or two splits
            have the same content, so that a run would be scored on what it was trained on.
    """
    checked = set()
    for cfg in configs:
        task = cfg.task
        reading = repr((cfg.data.files, task.text, task.label, task.labels, task.label_range, task.read_splits))
        if cfg.data.files and reading not in checked:
            checked.add(reading)
            refuse_equal_files(cfg.data.files)
            for split in task.read_splits:
                read_examples(task, cfg.data, split)


def refuse_equal_files(files: dict[str, str]) -> None:
    """Raise UserError if the files of two splits have the same content; ``files``: split -> path."""
    splits: dict[str, str] = {}
    for split, file in files.items():
        other = splits.setdefault(fingerprint_own_file(Path(file)), split)
        if other != split:
            raise UserError(
                f"data.files: {split} ({Path(file).name}) has the same content as {other}: name a file with other "
                "examples"
            )
