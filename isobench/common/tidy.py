"""Tidy data, one row for each observation, written as Parquet and CSV."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.parquet

from isobench.common.files import write_whole


def make_table(rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """Make a table with each column that any row has, in order of appearance; a value that a row lacks is missing."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pyarrow.table({name: [row.get(name) for row in rows] for name in names})


def write_table(folder: Path, name: str, table: pyarrow.Table) -> None:
    """Write a table to ``name.parquet`` and ``name.csv`` in a folder, each whole or not at all.

    In the CSV file the parts of a list are joined by spaces, and no text is a formula to a spreadsheet.
    """
    with write_whole(folder / f"{name}.parquet") as file:
        pyarrow.parquet.write_table(table, file)
    with write_whole(folder / f"{name}.csv") as file:
        guarded = {guard_from_formula(column): _guard_column(table[column]) for column in table.column_names}
        pyarrow.csv.write_csv(pyarrow.table(guarded), file)


def _guard_column(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Guard each text of a column from being read as a formula; a list becomes one text."""
    if pyarrow.types.is_list(column.type):
        texts = [None if parts is None else " ".join(map(str, parts)) for parts in column.to_pylist()]
        column = pyarrow.chunked_array([pyarrow.array(texts, pyarrow.string())])
    if not pyarrow.types.is_string(column.type) and not pyarrow.types.is_large_string(column.type):
        return column
    distinct = column.dictionary_encode().combine_chunks()  # a column of a large report has few texts, many times
    texts = [text and guard_from_formula(text) for text in distinct.dictionary.to_pylist()]
    return pyarrow.chunked_array([pyarrow.array(texts, column.type).take(distinct.indices)])


def guard_from_formula(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would take for a formula; numbers and dashes stay."""
    if text[:1] not in tuple("=+-@\t\r") or set(text) <= {"-"}:
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
