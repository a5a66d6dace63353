"""The runs of a bundle: tables in the place of a folder for each run.

BUNDLE/bundle.json            the sha256 of every other file (isobench.bundles.manifest)
BUNDLE/plan.json              the runs that were asked for, with their settings (isobench.runs.plan)
BUNDLE/records.parquet        a row a run: its key, and the text of its ``result.json``, byte for byte
BUNDLE/predictions.parquet    a row an example: its run's key, then the columns of the run's file of predictions

Where runs have predictions with other columns, each further set of columns has a file: ``predictions_2.parquet``, ...
Rows are in the order of their keys, and those of a run in the order of its own file.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from isobench.common.files import BUNDLE_FILE, MEBIBYTE, cache_until_changed, read_bounded
from isobench.runs.record import make_damage_error

RECORDS_FILE = "records.parquet"
PREDICTIONS_FILES = re.compile(r"predictions(_\d{1,3})?\.parquet")
TABLE_LIMIT = 1024 * MEBIBYTE  # bytes of a Parquet file
KEY = re.compile("[0-9a-f]{64}")
MANIFEST_LIMIT = 64 * MEBIBYTE  # a hundred thousand runs
Records = Mapping[str, bytes]  # key -> text of a record


def is_bundle(folder: str | Path) -> bool:
    return Path(folder, BUNDLE_FILE).is_file()


def read_member(bundle: Path, name: str) -> bytes:
    """Read one of a bundle's files; UserError unless it is the one that the manifest lists."""
    try:
        listed = orjson.loads(read_bounded(bundle / BUNDLE_FILE, MANIFEST_LIMIT))["files"].get(name)
        content = read_bounded(bundle / name, TABLE_LIMIT)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise make_damage_error(bundle / name, error) from error
    if hashlib.sha256(content).hexdigest() != listed:
        raise make_damage_error(bundle / name, ValueError(f"it is not the file that {BUNDLE_FILE} lists"))
    return content


def read_records(bundle: Path) -> Records:
    """Read the texts of a bundle's records by key; UserError if they are damaged."""
    return _read_records(bundle.absolute() / BUNDLE_FILE)


@partial(cache_until_changed, limit=1)
def _read_records(manifest: Path) -> Records:
    bundle = manifest.parent
    if not (bundle / RECORDS_FILE).exists():
        return {}
    content = read_member(bundle, RECORDS_FILE)
    try:
        return parse_records(content)
    except Exception as error:  # a damaged Parquet file may raise anything
        raise make_damage_error(bundle / RECORDS_FILE, error) from error


def read_predictions(bundle: Path) -> Mapping[str, Any]:
    """Read the rows of a bundle's predictions by key, each a ``pyarrow.Table``; UserError if they are damaged."""
    return _read_predictions(bundle.absolute() / BUNDLE_FILE)


@partial(cache_until_changed, limit=1)
def _read_predictions(manifest: Path) -> Mapping[str, Any]:
    bundle, found = manifest.parent, {}
    for file in list_predictions(path.name for path in bundle.iterdir()):
        content = read_member(bundle, file)
        try:
            for key, rows in split_by_key(parse_table(content)):
                if key in found:
                    raise ValueError(f"the predictions of {key[:16]} stand there twice")
                found[key] = rows
        except Exception as error:  # as above
            raise make_damage_error(bundle / file, error) from error
    return found


def list_predictions(names: Iterable[str]) -> list[str]:
    return sorted(filter(PREDICTIONS_FILES.fullmatch, names))


def parse_records(content: bytes) -> Records:
    table = parse_table(content).combine_chunks()
    if table.column_names != ["key", "record"]:
        raise ValueError(f"its columns are {table.column_names}")
    keys, texts = (table[name].to_pylist() for name in table.column_names)
    if not all(isinstance(key, str) and KEY.fullmatch(key) for key in keys):
        raise ValueError("a key is not 64 hex digits")
    if len(set(keys)) < len(keys):
        raise ValueError("it has a key twice")
    return {key: text.encode() for key, text in zip(keys, texts, strict=True)}


def split_by_key(table: Any) -> Iterator[tuple[str, Any]]:
    """Yield each key of a table of predictions, which stand together, with its rows without the key."""
    import numpy as np

    if table.num_rows:
        keys = table.combine_chunks()["key"].chunk(0)
        places = keys.indices.to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist()]  # rows where another key begins
        rows = table.drop_columns("key")
        for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
            yield keys[start].as_py(), rows.slice(start, end - start)


def parse_table(content: bytes, columns: Sequence[str] | None = None) -> Any:
    """Read a Parquet file as a ``pyarrow.Table``, its texts as dictionaries."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(pyarrow.BufferReader(content))
    texts = [field.name for field in schema if pyarrow.types.is_string(field.type)]
    file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content), read_dictionary=texts)
    return file.read(columns=columns, use_threads=False)


def format_records(records: Records) -> bytes:
    """Return the content of ``records.parquet``."""
    import pyarrow

    keys = sorted(records)
    return _format_table(pyarrow.table({"key": keys, "record": [records[key].decode() for key in keys]}))


def format_predictions(predictions: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of predictions: name -> content. ``predictions``: key -> ``pyarrow.Table``."""
    import pyarrow

    groups: dict[str, list[Any]] = {}
    for key in sorted(predictions):
        rows = simplify(predictions[key])
        keyed = rows.add_column(0, "key", pyarrow.array([key] * rows.num_rows, pyarrow.string()))
        groups.setdefault(str(rows.schema), []).append(keyed)
    names = ["predictions.parquet", *(f"predictions_{number}.parquet" for number in range(2, len(groups) + 1))]
    tables = map(pyarrow.concat_tables, groups.values())
    return {name: _format_table(table) for name, table in zip(names, tables, strict=False)}


def simplify(table: Any) -> Any:
    """Return a table as `isobench.runs.folder.write_predictions` writes it: plain texts and lists, in one chunk."""
    import pyarrow

    def simplify_type(found: Any) -> Any:
        if pyarrow.types.is_dictionary(found):
            return found.value_type
        return pyarrow.list_(found.value_type) if pyarrow.types.is_list(found) else found

    schema = pyarrow.schema([(field.name, simplify_type(field.type)) for field in table.schema])
    return table.cast(schema).combine_chunks()


def _format_table(table: Any) -> bytes:
    """Return a ``pyarrow.Table`` as a small Parquet file, by an encoding for each type of column.

    Texts that repeat are stored once, integers as differences. Of floats the first bytes stand together, then the
    second ones and so on, since their exponents are alike.
    """
    import pyarrow
    import pyarrow.parquet

    encodings, texts = {}, []
    for field in table.schema:
        is_list = pyarrow.types.is_list(field.type)
        path = f"{field.name}.list.element" if is_list else field.name
        kind = field.type.value_type if is_list else field.type
        if pyarrow.types.is_floating(kind):
            encodings[path] = "BYTE_STREAM_SPLIT"
        elif pyarrow.types.is_integer(kind):
            encodings[path] = "DELTA_BINARY_PACKED"
        elif field.name != "record":  # no record's text repeats
            texts.append(path)
    file = io.BytesIO()
    pyarrow.parquet.write_table(
        table, file, compression="zstd", compression_level=9, use_dictionary=texts,
        column_encoding=encodings, data_page_size=16 * MEBIBYTE, write_statistics=False,
    )  # fmt: skip
    return file.getvalue()
