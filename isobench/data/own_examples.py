"""Read and fingerprint the examples of a user's own file, with the columns that a completed task names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError
from isobench.common.files import sha256_file
from isobench.config.schema import Task
from isobench.data.labels import UNLABELLED
from isobench.data.own_files import find_format, read_own_file
from isobench.data.own_labels import format_labels, number_labels, parse_number
from isobench.data.parquet import require_columns


def fingerprint_own_file(path: Path) -> str:
    """Identify a file's content: its format, which decides how its bytes are read, and its sha256.

    Raises:
        UserError: there is no such file, or its format is not known.
    """
    return f"{find_format(path)} {sha256_file(path)}"


def read_own_columns(path: Path, task: Task, may_lack_labels: bool = False) -> dict[str, list[Any]]:
    """Read the columns of texts of N examples, and under ``label`` their classes as numbers, or their scores.

    With ``may_lack_labels``, ``label`` is left out if the file has no such column or if its labels are hidden.

    Raises:
        UserError: the file can't be read, lacks a column or a label, or has a label that is no class of the task.
    """
    label = task.label or "label"
    table = read_own_file(path)
    require_columns(table.schema, task.text if may_lack_labels else (*task.text, label), str(path))
    columns = {name: table[name].to_pylist() for name in task.text}
    if "label" in columns:
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
