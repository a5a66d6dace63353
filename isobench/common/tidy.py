"""Tidy data, one row for each observation, written as Parquet and CSV."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet

from isobench.common.files import require_regular_file, write_whole

if TYPE_CHECKING:
    import pandas


def write_rows(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write rows to ``name.parquet`` and ``name.csv`` in a folder, each whole or not at all; return the two files."""
    return _write(folder, name, make_table(list_columns(rows)))


def write_table(folder: Path, name: str, table: "pandas.DataFrame") -> list[Path]:
    """Write a DataFrame as `write_rows` writes rows; in the CSV file, the parts of a list are joined by spaces."""
    return _write(folder, name, pyarrow.Table.from_pandas(table, preserve_index=False).replace_schema_metadata())


def _write(folder: Path, name: str, table: pyarrow.Table) -> list[Path]:
    """Write a table; a text in the CSV file that a spreadsheet would carry out as a formula gets an apostrophe."""
    files = [folder / f"{name}.parquet", folder / f"{name}.csv"]
    with write_whole(files[0]) as temporary:
        pyarrow.parquet.write_table(table, temporary)
    with write_whole(files[1]) as temporary:
        guarded = {guard_from_formula(column): _guard_column(table[column]) for column in table.column_names}
        pyarrow.csv.write_csv(pyarrow.table(guarded), temporary)
    return files


def list_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn rows into columns: each name that any row has, in order of appearance; None where a row lacks it."""
    names = dict.fromkeys(key for row in rows for key in row)
    return {key: [row.get(key) for row in rows] for key in names}


def make_table(columns: Mapping[str, Sequence[Any] | np.ndarray]) -> pyarrow.Table:
    """Make the table that is written as Parquet; NaN in an array is a missing value."""
    return pyarrow.table(
        {key: pyarrow.array(values, from_pandas=isinstance(values, np.ndarray)) for key, values in columns.items()}
    )


def _guard_column(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Guard each text of a column from being read as a formula; a list becomes one text."""
    if pyarrow.types.is_list(column.type):
        texts = [None if parts is None else " ".join(map(str, parts)) for parts in column.to_pylist()]
        column = pyarrow.chunked_array([pyarrow.array(texts, pyarrow.string())])
    if not pyarrow.types.is_string(column.type) and not pyarrow.types.is_large_string(column.type):
        return column
    guarded = {text: guard_from_formula(text) for text in column.unique().to_pylist() if text is not None}
    if all(text == other for text, other in guarded.items()):
        return column
    return pyarrow.chunked_array([[guarded.get(text) for text in column.to_pylist()]], type=column.type)


def guard_from_formula(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would take for a formula; numbers and dashes stay."""
    if text[:1] not in tuple("=+-@\t\r") or set(text) <= {"-"}:
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def read_rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Read the rows that `write_rows` wrote; a file that is missing or damaged is an OSError or ArrowException."""
    file = folder / f"{name}.parquet"
    require_regular_file(file)
    return pyarrow.parquet.read_table(file).to_pylist()
