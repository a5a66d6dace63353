"""Read a run's predictions, and other Parquet that somebody else may have written, within limits.

The columns are those that isobench.training.predictions writes: ``split`` and ``index``, then ``label``,
``prediction`` and ``logits``, or for generated texts ``reference`` and ``hypothesis``.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet

from isobench.common.files import MEBIBYTE
from isobench.config.schema import Task

MAX_ROWS = 5_000_000
MAX_VALUES = 50_000_000  # of all columns; a few bytes of Parquet can stand for very many values
UNCOMPRESSED_LIMIT = 512 * MEBIBYTE  # of all columns, before dictionaries are looked up
TEXT_LIMIT = 256 * MEBIBYTE  # of a table's texts; each is stored once, and may stand in many rows
KEY_COLUMNS = {"split": pyarrow.string(), "index": pyarrow.int64()}
CLASS_COLUMNS = {
    "label": pyarrow.float64(), "prediction": pyarrow.float64(), "logits": pyarrow.list_(pyarrow.float64()),
}  # fmt: skip
TEXT_COLUMNS = {"reference": pyarrow.string(), "hypothesis": pyarrow.string()}


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
        examples: split -> number of examples, as recorded; empty if they are not to be compared.

    Raises:
        ValueError: the file has other columns, splits or numbers of examples, or predictions that are not those that
            follow from the logits.
        pyarrow.ArrowException: it is no Parquet, or damaged.
    """
    columns = KEY_COLUMNS | (TEXT_COLUMNS if task.generation else CLASS_COLUMNS)
    schema = pyarrow.parquet.read_schema(pyarrow.BufferReader(content))
    found = list(zip(schema.names, schema.types, strict=True))
    if found != list(columns.items()):
        raise ValueError(f"the columns are {found}, and should be {columns}")
    table = read_table(content)
    names = [*task.evaluated, *([task.test_split] if task.test_split else [])]
    own_splits = table["split"].unify_dictionaries().combine_chunks()
    if own_splits.unique().to_pylist() != names:
        raise ValueError(f"they are of the splits {own_splits.unique().to_pylist()}, and the run's are {names}")
    splits, start = {}, 0
    for name in names:
        count = pc.sum(pc.equal(own_splits, name)).as_py()
        rows = table.slice(start, count)
        if examples and examples.get(name) != count:
            raise ValueError(f"{name} has {count} rows, and its record says {examples.get(name)} examples")
        if rows["index"].to_numpy().tolist() != list(range(count)) or rows["split"].unique().to_pylist() != [name]:
            raise ValueError(f"the rows of {name} are not in the order of the data")
        splits[name] = _read_texts(rows) if task.generation else _read_classes(rows, task, name)
        start += count
    return splits


def read_table(content: bytes) -> pyarrow.Table:
    """Read a Parquet file with its texts as dictionaries, unless it stands for more values than isobench writes.

    Raises:
        ValueError: it stands for too many values, or for texts that are too long.
        pyarrow.ArrowException: it is no Parquet, or damaged.
    """
    schema = pyarrow.parquet.read_schema(pyarrow.BufferReader(content))
    texts = [field.name for field in schema if pyarrow.types.is_string(field.type)]
    file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content), read_dictionary=texts)
    groups = [file.metadata.row_group(i) for i in range(min(file.metadata.num_row_groups, 1000))]
    chunks = [group.column(i) for group in groups for i in range(min(group.num_columns, 1000))]
    values = sum(chunk.num_values for chunk in chunks)
    size = sum(chunk.total_uncompressed_size for chunk in chunks)
    is_small = file.metadata.num_row_groups <= 1000 and len(schema) <= 1000 and size <= UNCOMPRESSED_LIMIT
    if not is_small or file.metadata.num_rows > MAX_ROWS or values > MAX_VALUES:
        raise ValueError(f"it has {file.metadata.num_rows:,} rows, {values:,} values and {size:,} bytes: too many")
    table = file.read(use_threads=False)
    if sum(map(_measure_texts, texts, [table] * len(texts))) > TEXT_LIMIT:
        raise ValueError(f"its texts have more than {TEXT_LIMIT // MEBIBYTE} MiB")
    return table


def _measure_texts(name: str, table: pyarrow.Table) -> int:
    """Return how many bytes a column of texts has when each row's text is written out."""
    lengths = (
        pc.cast(pc.binary_length(chunk.dictionary), pyarrow.int64()).take(chunk.indices)
        for chunk in table[name].chunks
    )
    return sum(pc.sum(own).as_py() or 0 for own in lengths)


def _read_texts(rows: pyarrow.Table) -> PredictedSplit:
    references, hypotheses = (rows[name].to_pylist() for name in TEXT_COLUMNS)
    if not all(isinstance(text, str) for text in (*references, *hypotheses)):
        raise ValueError("a reference or a hypothesis is not a text")
    return PredictedSplit(references, hypotheses, None)


def _read_classes(rows: pyarrow.Table, task: Task, name: str) -> PredictedSplit:
    """Read labels, predictions and logits, and check that the predictions follow from the logits."""
    labels, predictions = (np.array(rows[column].to_numpy(), np.float64) for column in ("label", "prediction"))
    lists = rows["logits"].combine_chunks()
    values = lists.flatten().to_numpy(zero_copy_only=False)
    widths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    classes = task.as_classes or (len(task.labels) if task.labels else 1)
    if lists.null_count or not (widths == classes).all() or not np.isfinite(values).all():
        raise ValueError(f"the logits of {name} are not {classes} finite numbers for each example")
    logits = values.reshape(len(rows), classes)
    expected = logits[:, 0] if classes == 1 else logits.argmax(1)
    if not np.array_equal(predictions, expected):
        wrong = int(np.flatnonzero(predictions != expected)[0])
        raise ValueError(f"the prediction of example {wrong} of {name} is not the one that its logits give")
    if name == task.test_split:
        return PredictedSplit(labels, predictions, logits)
    if not np.isfinite(labels).all():
        raise ValueError(f"an example of {name} has no label")
    if classes == 1:
        return PredictedSplit(labels, predictions, logits)
    whole = labels.astype(np.int64)
    if not (whole == labels).all() or whole.min() < 0 or whole.max() >= classes:
        raise ValueError(f"a label of {name} is no class from 0 to {classes - 1}")
    return PredictedSplit(whole, expected, logits)
