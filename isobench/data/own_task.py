"""Complete the config of a task that reads a user's own files (``data.files``), and check these before any run.

What the user names stays: columns (``task.text``, ``task.label``), classes (``task.labels``), metrics. What is not
named is found in the file of the training split, by the rules of the task's kind. The completed config names it, so
that a found column has the same run key as a named one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError
from isobench.common.terminal import format_count, print_note
from isobench.config.bounds import check_value
from isobench.config.schema import Config, Data, Task
from isobench.data.sources import describe_source, find_data_source, find_own_file, list_shares
from isobench.tasks.kind import Examples, kind_of, load_kind


def complete_config(cfg: Config) -> Config:
    """Return a config with its task completed from ``data.files``, whose paths become absolute, if there are any.

    A kind from outside is imported: the config must be one that the user's own command made.
    """
    task, data = cfg.task, cfg.data
    load_kind(task)
    check_value("data", data, Data)
    if not data.files:
        return cfg
    return kind_of(task).complete(replace(cfg, data=replace(data, files=_match_files(task, data))))


def _match_files(task: Task, data: Data) -> dict[str, Any]:
    """Check that there is a file, or a share of the training file, for each split; make paths absolute."""
    if task.embedded or kind_of(task).is_corpus:
        raise UserError(f"data.files doesn't go with task={task.name}: choose task=mine, or leave it out")
    shares = list_shares(data)
    files = {
        split: file if split in shares else str(Path(file).expanduser().absolute())
        for split, file in (data.files or {}).items()
    }
    if set(files) != set(task.read_splits) or task.train_split in shares:
        raise UserError(
            f"data.files has {', '.join(files)}, and the task reads {', '.join(task.read_splits)}: name a file for "
            "each, or a share of the training file such as 0.2, or set task.train_split, .dev_splits and .test_split"
        )
    return files


def _list_rows(examples: Examples) -> list[Any]:
    """List the texts without surrounding blanks, a row for each example."""
    return list(zip(*(map(str.strip, column) for column in examples.texts), strict=True))


def _describe_split(cfg: Config, split: str, examples: Examples, training_rows: set[Any]) -> str:
    task, file, rows = cfg.task, find_own_file(cfg.task, cfg.data, split), _list_rows(examples)
    found = format_count(len(rows), "row") + examples.notes
    repeated = 0 if split == task.train_split else sum(row in training_rows for row in rows)
    found += f", {repeated:,} of them in {task.train_split} too" if repeated else ""
    return f"{split} {file.name} ({found}{', not scored' if split == task.test_split else ''})"


def _describe_own_data(cfg: Config) -> str:
    task, kind = cfg.task, kind_of(cfg.task)
    examples = {split: kind.read(task, cfg.data, split) for split in cfg.data.files or {}}
    training_rows = set(_list_rows(examples[task.train_split]))
    counts = ", ".join(_describe_split(cfg, split, own, training_rows) for split, own in examples.items())
    labels = kind.describe_labels(task, examples[task.train_split])
    return f"task={task.name}: {counts}; text in {', '.join(task.text)}{labels}; scored by {task.primary}"


def print_own_data(configs: Iterable[Config]) -> None:
    """Print on standard error how completed configs read the user's own files, each way once."""
    different = {repr((cfg.task, cfg.data.files, cfg.data.encoding)): cfg for cfg in configs if cfg.data.files}
    for line in dict.fromkeys(map(_describe_own_data, different.values())):
        print_note(line)


def check_files(configs: Iterable[Config], sources: Sequence[str] = ("files",)) -> None:
    """Read every split of the completed configs' data once, to find mistakes before any run starts.

    ``sources``: of `find_data_source`; data from others are not read. A corpus is never read here.
    """
    checked = set()
    for cfg in configs:
        task, kind = cfg.task, kind_of(cfg.task)
        reading = repr((cfg.data, replace(task, train_samples=None, dev_samples=None, metrics=[])))
        if find_data_source(task, cfg.data) in sources and not kind.is_corpus and reading not in checked:
            checked.add(reading)
            rows = {split: set(_list_rows(kind.read(task, cfg.data, split))) for split in task.read_splits}
            training_rows = rows.pop(task.train_split)
            for split in [split for split, own in rows.items() if own == training_rows]:
                name = f" ({find_own_file(task, cfg.data, split).name})" if cfg.data.files else ""
                raise UserError(
                    f"{describe_source(task, cfg.data)}: {split}{name} has the same texts as {task.train_split}: "
                    "name a file with other examples"
                )
