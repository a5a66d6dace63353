"""Read a run's predictions from Parquet that somebody else may have written, and check their form.

The columns are those that isobench.training.predictions writes: ``split`` and ``index``, then ``label``,
``prediction`` and ``logits``, or for generated texts ``reference`` and ``hypothesis``.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from isobench.common.reading import MEBIBYTE
from isobench.config.schema import Task

MAX_ROWS = 5_000_000
MAX_VALUES = 50_000_000  # of all columns; a few bytes of Parquet can stand for very many values
UNCOMPRESSED_LIMIT = 512 * MEBIBYTE  # of all columns, before dictionaries are looked up
TEXT_LIMIT = 256 * MEBIBYTE  # of all texts of a table; each is stored once, and may stand in many rows
COLUMN_TYPES = {
    "split": pyarrow.string(), "index": pyarrow.int64(), "label": pyarrow.float64(), "prediction": pyarrow.float64(),
    "logits": pyarrow.list_(pyarrow.float64()), "reference": pyarrow.string(), "hypothesis": pyarrow.string(),
}  # fmt: skip
CLASS_COLUMNS = ("label", "prediction", "logits")
TEXT_COLUMNS = ("reference", "hypothesis")


@dataclass
class PredictedSplit:
    """The predictions of one split's N examples, in the data's order.

    Args:
        labels: classes or scores [N], NaN for those of a test split without labels, or N reference texts.
        predictions: classes or scores [N], or N hypotheses.
        logits: [N, c]; None for texts.
    """

    labels: np.ndarray | list[str]
    predictions: np.ndarray | list[str]
    logits: np.ndarray | None

    def hash_labels(self) -> str:
        """Compute the sha256 of the labels, to compare them with another run's."""
        if isinstance(self.labels, np.ndarray):
            return hashlib.sha256(self.labels.tobytes()).hexdigest()
        digest = hashlib.sha256()
        for text in self.labels:
            digest.update(b"%d:" % len(text.encode()) + text.encode())
        return digest.hexdigest()


def read_predictions(content: bytes, task: Task, examples: Mapping[str, int]) -> dict[str, PredictedSplit]:
    """Read the predictions of every split that a task evaluates, and of its test split.

    Args:
        content: the Parquet file.
        task: the task.
        examples: split -> number of examples, as recorded.

    Raises:
        ValueError: the file has other columns, splits or numbers of examples, or predictions that are not those that
            follow from the logits.
        pyarrow.ArrowException: it is no Parquet, or damaged.
    """
    columns = TEXT_COLUMNS if task.generation else CLASS_COLUMNS
    table = read_bounded_table(content, ("split", "index", *columns))
    names = [*task.evaluated, *([task.test_split] if task.test_split else [])]
    split_column = table["split"].unify_dictionaries().combine_chunks()
    found = pyarrow.compute.unique(split_column).to_pylist()
    if found != names:
        raise ValueError(f"they are of the splits {found}, and the run's are {names}")
    splits, start = {}, 0
    for name in names:
        count = pyarrow.compute.sum(pyarrow.compute.equal(split_column, name)).as_py()
        part = table.slice(start, count)
        if examples and examples.get(name) != count:
            raise ValueError(f"{name} has {count} rows, and its record says {examples.get(name)} examples")
        if part["index"].to_numpy().tolist() != list(range(count)) or part["split"].unique().to_pylist() != [name]:
            raise ValueError(f"the rows of {name} are not in the order of the data")
        splits[name] = read_texts(part) if task.generation else read_classes(part, task, name)
        start += count
    return splits


def read_bounded_table(content: bytes, columns: tuple[str, ...]) -> pyarrow.Table:
    """Read a Parquet file with exactly these columns, unless it has too many values.

    Raises:
        ValueError: it has other columns or types, or too many values.
        pyarrow.ArrowException: it is no Parquet, or damaged.
    """
    schema = pyarrow.parquet.read_schema(pyarrow.BufferReader(content))
    for field in schema:
        if field.name in columns and field.type != COLUMN_TYPES[field.name]:
            raise ValueError(f"the values of {field.name} are {field.type}, and should be {COLUMN_TYPES[field.name]}")
    file = open_parquet(content)
    if tuple(file.schema_arrow.names) != columns:
        raise ValueError(f"the columns are {file.schema_arrow.names}, and should be {list(columns)}")
    table = file.read(use_threads=False)
    require_short_texts(table)
    return table


def open_parquet(content: bytes) -> pyarrow.parquet.ParquetFile:
    """Open a Parquet file whose texts will be read as dictionaries, in which each text is stored once.

    Raises:
        ValueError: it stands for too many values.
        pyarrow.ArrowException: it is no Parquet, or damaged.
    """
    schema = pyarrow.parquet.read_schema(pyarrow.BufferReader(content))
    texts = [field.name for field in schema if pyarrow.types.is_string(field.type)]
    file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content), read_dictionary=texts)
    require_bounded(file.metadata)
    return file


def require_bounded(metadata: Any) -> None:
    """Raise ValueError if a Parquet file stands for more values than isobench writes."""
    groups = [metadata.row_group(i) for i in range(min(metadata.num_row_groups, 10_000))]
    values = sum(group.column(i).num_values for group in groups for i in range(min(group.num_columns, 1000)))
    if metadata.num_rows > MAX_ROWS or values > MAX_VALUES or metadata.num_row_groups > 10_000:
        raise ValueError(f"it has {metadata.num_rows:,} rows and {values:,} values, too many to read")
    size = sum(group.column(i).total_uncompressed_size for group in groups for i in range(group.num_columns))
    if size > UNCOMPRESSED_LIMIT:
        raise ValueError(f"it has {size / MEBIBYTE:,.0f} MiB uncompressed, too many to read")


def require_short_texts(table: pyarrow.Table) -> None:
    """Raise ValueError if the texts of a table, which are dictionaries, would fill too much memory if written out."""
    size = 0
    for number, field in enumerate(table.schema):
        if pyarrow.types.is_dictionary(field.type):
            for chunk in table.column(number).chunks:
                lengths = pyarrow.compute.binary_length(chunk.dictionary)
                size += (
                    pyarrow.compute.sum(pyarrow.compute.cast(lengths, pyarrow.int64()).take(chunk.indices)).as_py()
                    or 0
                )
    if size > TEXT_LIMIT:
        raise ValueError(f"its texts have more than {TEXT_LIMIT // MEBIBYTE} MiB")


def read_texts(part: pyarrow.Table) -> PredictedSplit:
    """Read references and hypotheses; ValueError if one is missing."""
    references, hypotheses = (part[name].to_pylist() for name in TEXT_COLUMNS)
    if not all(isinstance(text, str) for text in (*references, *hypotheses)):
        raise ValueError("a reference or a hypothesis is not a text")
    return PredictedSplit(references, hypotheses, None)


def read_classes(part: pyarrow.Table, task: Task, name: str) -> PredictedSplit:
    """Read labels, predictions and logits, and check that the predictions follow from the logits.

    Raises:
        ValueError: they don't, or a number is missing or not finite.
    """
    labels, predictions = (
        part[column].cast(pyarrow.float64()).to_numpy().astype(np.float64) for column in ("label", "prediction")
    )
    lists = part["logits"].combine_chunks()
    values = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    widths = pyarrow.compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    classes = task.as_classes or (len(task.labels) if task.labels else 1)
    if lists.null_count or not (widths == classes).all() or not np.isfinite(values).all():
        raise ValueError(f"the logits of {name} are not {classes} finite numbers for each example")
    logits = values.reshape(len(part), classes)
    expected = logits[:, 0] if classes == 1 else logits.argmax(1)
    if not np.array_equal(predictions, expected):
        wrong = int(np.flatnonzero(predictions != expected)[0])
        raise ValueError(f"the prediction of example {wrong} of {name} is not the one that its logits give")
    if name == task.test_split:
        return PredictedSplit(labels, predictions, logits)
    if not np.isfinite(labels).all():
        raise ValueError(f"an example of {name} has no label")
    if classes > 1:
        whole = labels.astype(np.int64)
        if not (whole == labels).all() or whole.min() < 0 or whole.max() >= classes:
            raise ValueError(f"a label of {name} is no class from 0 to {classes - 1}")
        return PredictedSplit(whole, expected, logits)
    return PredictedSplit(labels, predictions, logits)
