"""Read tidy rows from Parquet that somebody else may have written, and compare them with what they should be."""

import pyarrow
import pyarrow.compute

from isobench.common.reading import MEBIBYTE
from isobench.verification.folder import PREDICTIONS_LIMIT, VerifiedFolder
from isobench.verification.predictions import open_parquet

TEXT_LIMIT = 512 * MEBIBYTE  # of all texts of a table


def read_stored_table(folder: VerifiedFolder, name: str) -> pyarrow.Table:
    """Read tidy rows.

    Raises:
        OSError: there is no such file, or it can't be read.
        ValueError: it stands for more than isobench writes.
        pyarrow.ArrowException: it is damaged.
    """
    table = open_parquet(folder.read(name, PREDICTIONS_LIMIT)).read(use_threads=False)
    size = 0
    for number, field in enumerate(table.schema):
        if pyarrow.types.is_dictionary(field.type):
            for chunk in table.column(number).chunks:  # each text is stored once, and stands in many rows
                lengths = pyarrow.compute.binary_length(chunk.dictionary)
                size += pyarrow.compute.sum(lengths.take(chunk.indices)).as_py() or 0
    if size > TEXT_LIMIT:
        raise ValueError(f"its texts have more than {TEXT_LIMIT // MEBIBYTE} MiB")
    plain = [
        field.with_type(pyarrow.string()) if pyarrow.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pyarrow.schema(plain))


def find_table_difference(stored: pyarrow.Table, expected: pyarrow.Table) -> tuple[str | None, bool]:
    """Say where stored rows differ first from those that the records give.

    Returns:
        The difference in words, None if there is none; and whether only columns differ that one of both lacks, so
        that another version may have written them.
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
        words = [f"it has the columns {', '.join(extra)}"] * bool(extra)
        words += [f"it lacks {', '.join(lacking)}"] * bool(lacking)
        return "; ".join(words) or "its columns are in another order", True
    return None, True
