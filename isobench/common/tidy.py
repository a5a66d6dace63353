"""Tidy data, one row for each observation, written as Parquet and CSV."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet

from isobench.common.files import write_atomic


def write_rows(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write rows to ``name.parquet`` and ``name.csv`` in a folder, each whole or not at all; return the two files."""
    names = dict.fromkeys(key for row in rows for key in row)  # each that any row has, in order of appearance
    return write_columns(folder, name, {key: [row.get(key) for row in rows] for key in names})


def write_columns(folder: Path, name: str, columns: Mapping[str, Sequence[Any] | np.ndarray]) -> list[Path]:
    """Write columns of equal length as `write_rows` writes rows, NaN in an array as missing; return the two files."""
    table = pyarrow.table(
        {key: pyarrow.array(values, from_pandas=isinstance(values, np.ndarray)) for key, values in columns.items()}
    )
    files = [folder / f"{name}.parquet", folder / f"{name}.csv"]
    write_atomic(files[0], partial(pyarrow.parquet.write_table, table))
    write_atomic(files[1], partial(pyarrow.csv.write_csv, table))
    return files


def read_rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Read the rows that `write_rows` wrote.

    Raises:
        OSError, pyarrow.ArrowException: there is no such file, or it is damaged.
    """
    return pyarrow.parquet.read_table(folder / f"{name}.parquet").to_pylist()
