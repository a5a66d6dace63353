"""Read tidy rows from Parquet that somebody else may have written, and compare them with what they should be."""

import csv
import io
from collections.abc import Collection

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from isobench.verification.folder import PREDICTIONS_LIMIT, VerifiedFolder
from isobench.verification.predictions import open_parquet, require_short_texts

ENDED = ("finished", "failed")  # the status of a tidy row whose run has a record

SELECTION_COLUMNS = ("selected", "candidates")  # of a run, which depend on the other runs
TIDY_TYPES = (pyarrow.string(), pyarrow.int64(), pyarrow.float64(), pyarrow.bool_(), pyarrow.null())


def read_stored_table(folder: VerifiedFolder, name: str) -> pyarrow.Table:
    """Read tidy rows.

    Raises:
        OSError: there is no such file, or it can't be read.
        ValueError: it stands for more than isobench writes, or for values of other types.
        pyarrow.ArrowException: it is damaged.
    """
    content = folder.read(name, PREDICTIONS_LIMIT)
    schema = pyarrow.parquet.read_schema(pyarrow.BufferReader(content))
    if foreign := [field.name for field in schema if field.type not in TIDY_TYPES]:
        raise ValueError(
            f"the values of {foreign[0]} are {schema.field(foreign[0]).type}, which isobench does not write"
        )
    table = open_parquet(content).read(use_threads=False)
    require_short_texts(table)
    return table.cast(schema.remove_metadata())


def parse_csv(content: bytes) -> pyarrow.Table:
    """Read the cells of a CSV file as texts.

    Raises:
        ValueError: it is empty, or a row has more or fewer cells than the first.
    """
    head, *rows = list(csv.reader(io.StringIO(content.decode(), newline=""))) or [[]]
    if not head or any(len(row) != len(head) for row in rows):
        raise ValueError("its rows have not all the same number of cells")
    cells = zip(*rows, strict=True) if rows else [()] * len(head)
    return pyarrow.table([pyarrow.array(column, pyarrow.string()) for column in cells], names=head)


def select_rows(table: pyarrow.Table, keys: Collection[str]) -> pyarrow.Table:
    """Return the rows of some runs, by their keys."""
    return table.filter(pyarrow.compute.is_in(table["key"], pyarrow.array(sorted(keys), pyarrow.string())))


def find_early_scores(table: pyarrow.Table) -> list[str]:
    """Return the keys of the rows that have a score though their run had not ended."""
    if "score" not in table.column_names:
        return []
    rows = zip(table["key"].to_pylist(), table["status"].to_pylist(), table["score"].to_pylist(), strict=True)
    return [key for key, status, score in rows if status not in ENDED and score is not None]


def find_table_difference(stored: pyarrow.Table, expected: pyarrow.Table) -> tuple[str | None, bool]:
    """Say where stored rows differ first from those that the records give.

    Returns:
        The difference in words, None if there is none; and whether only the order of the columns differs.
    """
    if stored.num_rows != expected.num_rows:
        return f"it has {stored.num_rows} rows, and the records give {expected.num_rows}", False
    for name in stored.column_names:
        if name in expected.column_names and stored.column_names.count(name) == 1:
            ours, theirs = expected[name].to_pylist(), stored[name].to_pylist()
            for number, (own, other) in enumerate(zip(ours, theirs, strict=True)):
                is_nan = own != own and other != other
                if not is_nan and (own != other or type(own) is not type(other)):
                    key = f" of {expected['key'][number]}" if "key" in expected.column_names else ""
                    return f"{name} in row {number + 1}{key} is {other}, and the records give {own}", False
    if stored.column_names != expected.column_names:
        ours, theirs = expected.column_names, stored.column_names
        extra = [name for name in theirs if name not in ours or theirs.count(name) > 1]
        lacking = [name for name in ours if name not in theirs]
        words = [f"it has the columns {', '.join(extra)}"] if extra else []
        if lacking:
            words.append(f"it lacks the columns {', '.join(lacking)}")
        return "; ".join(words) or "its columns are in another order", not words
    return None, True
