"""Read columns of Parquet files; every error is one line that names the file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, extract_first_line
from isobench.common.reading import require_regular_file


@contextmanager
def handle_parquet_errors(path: Path) -> Iterator[None]:
    """Raise UserError instead of what pyarrow raises for a file that is damaged or no Parquet."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} can't be read as Parquet: {extract_first_line(error)}") from error


def require_columns(schema: Any, columns: Sequence[str], where: str) -> None:
    """Raise UserError unless an Arrow schema has the columns; ``translation.en`` is field en of struct translation.

    Args:
        schema: a ``pyarrow.Schema``.
        columns: the names to look for. A struct counts by its fields, not as a whole.
        where: the file or data set, for the error message.
    """
    from pyarrow.types import is_struct

    names: list[str] = []
    for field in schema:
        if is_struct(field.type):
            names += [f"{field.name}.{part.name}" for part in field.type.fields]
        else:
            names.append(field.name)
    missing = [name for name in columns if name not in names]
    if missing:
        raise UserError(f"{where} lacks the column {', '.join(missing)}; it has: {', '.join(names)}")


def has_column(path: Path, name: str) -> bool:
    """Return whether a Parquet file has a column; UserError if it is no Parquet file."""
    import pyarrow.parquet

    with handle_parquet_errors(path):
        return name in pyarrow.parquet.read_schema(path).names


def read_table(path: Path, columns: Sequence[str]) -> Any:
    """Read a file's columns as a ``pyarrow.Table``; of a dotted name, the whole struct.

    Raises:
        UserError: no Parquet file, or a column is missing.
    """
    import pyarrow.parquet

    require_regular_file(path)
    with handle_parquet_errors(path):
        require_columns(pyarrow.parquet.read_schema(path), columns, str(path))
        top_columns = dict.fromkeys(name.partition(".")[0] for name in columns)
        return pyarrow.parquet.read_table(path, columns=list(top_columns))


def read_field(table: Any, name: str) -> list[Any]:
    """Return the values of a table's column, or of a struct's field for a dotted name."""
    import pyarrow.compute

    top_column, *path = name.split(".")
    column = table[top_column]
    return (pyarrow.compute.struct_field(column, path) if path else column).to_pylist()


def describe_other_files(folder: Path) -> str:
    """Name a folder's files that are no Parquet, such as train.csv, and say what to do with them."""
    names = sorted(file.name for file in folder.iterdir() if file.suffix != ".parquet" and file.name[0] != ".")[:5]
    has = f"has {', '.join(names)}" if names else "is empty"
    return f"the folder {has}: convert each split to a file SPLIT.parquet"
