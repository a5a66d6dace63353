"""Read a user's CSV, TSV, JSON Lines and Parquet files by pyarrow; every error is one line that names the file.

Columns of CSV and TSV are read as texts, so that no text such as "null", "1e5" or a date becomes something else. In
CSV a field may stand in double quotes. In TSV a quote is a character like any other, as in GLUE's own files. What
spreadsheets make of CSV is read too: fields between semicolons, tabs or bars. A text is in UTF-8, or in UTF-16 if its
mark says so; any other encoding has to be named, because no bytes tell which one it is.
"""

import codecs
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import require_regular_file
from isobench.common.terminal import format_count
from isobench.data.labels import NUMBER

FORMATS = {
    ".csv": "CSV", ".tsv": "TSV", ".jsonl": "JSON Lines", ".ndjson": "JSON Lines", ".json": "JSON Lines",
    ".parquet": "Parquet",
}  # fmt: skip
ADVICE = {
    "CSV": "save it as UTF-8 with commas between fields, and double quotes around a field that holds a comma",
    "TSV": "save it as UTF-8 with a tab between fields, and none in them",
    "JSON Lines": "write one JSON object a line, in UTF-8, with values of one kind under each name",
    "Parquet": "write it again",
}
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
READ_AS = b"read as"  # in a table's metadata: how a file is written that is no usual one of its format
EXCELS_FIRST_LINE = re.compile(rb"sep=([;,\t|])\r?\n")
NOT_UTF8 = re.compile("[\udc80-\udcff]")  # what a byte that is no UTF-8 becomes under "surrogateescape"
LINE_BREAK = re.compile(r"\r\n?|\n")
JSON_STRING = re.compile(rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"')
DEEPEST_NESTING = 100  # of brackets in JSON Lines; pyarrow's parser crashes at some thousands
MOST_ROWS = 10_000_000  # of a Parquet file; a megabyte can say that it has more than fit into memory
LONGEST_TEXT = 10_000_000  # bytes of one field; a tokenizer takes some hundred times their memory
ROW_FROM_0 = re.compile(r"in row (\d+)$")  # pyarrow's JSON reader counts from 0, its CSV reader from 1 as "Row #1"
LARGEST_BLOCK = 2**31 - 1  # bytes; pyarrow takes no more
MANY_LINES = 10  # a text of more lines is mentioned; if each of them could be a row, it is refused


def find_format(path: Path) -> str:
    """Return the format of an existing file by the ending of its name."""
    if not path.is_file():
        raise UserError(f"data.files: {path} {'is no file' if path.exists() else 'does not exist'}")
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"data.files: {path} must end in one of {', '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()]


def describe_format(path: Path, encoding: str | None) -> str:
    """Say what decides how a file's bytes are read: its format, and ``data.encoding`` where the format takes it."""
    kind = find_format(path)
    return f"{kind} in {codecs.lookup(encoding).name}" if encoding and kind in ("CSV", "TSV") else kind


def read_own_file(path: Path, encoding: str | None = None) -> Any:
    """Read all columns of a file as a ``pyarrow.Table``; one that has not changed since is not read again.

    ``encoding``: as ``data.encoding``, of CSV and TSV that are not in UTF-8.
    """
    status = path.stat() if path.is_file() else None
    return _read_whole(path, encoding, status and (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=4)  # the files of a task
def _read_whole(path: Path, encoding: str | None, _state: Any) -> Any:
    import pyarrow

    kind = find_format(path)
    try:
        table = _decode_bytes(READERS[kind](path, encoding))
        table.validate(full=True)  # the JSON reader itself does not check that texts are UTF-8
    except (pyarrow.ArrowException, UnicodeError, OSError) as error:
        advice = "" if isinstance(error, OSError) and error.errno else f"; {ADVICE[kind]}"
        reason = ROW_FROM_0.sub(lambda row: f"in row {int(row[1]) + 1}", extract_first_line(error)).rstrip(". ")
        raise UserError(f"{path} can't be read as {kind}: {reason}{advice}") from error
    names = table.column_names
    used = [word for mark, word in SEPARATORS.items() if len(names) == 1 and mark in names[0]]
    if kind == "TSV" and used:
        raise UserError(f"{path} has {used[0]} between its columns instead of tabs: rename it to .csv")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UserError(f"{path} has two columns with the name {min(twice)}: rename one")
    _refuse_long_texts(table, path)
    return table


def describe_reading(table: Any) -> str:
    """Say how a file is written if it is no usual one of its format: ``, cp1251, semicolons``."""
    return (table.schema.metadata or {}).get(READ_AS, b"").decode()


def _refuse_long_texts(table: Any, path: Path) -> None:
    from pyarrow import compute, types

    for field in table.schema:
        if types.is_string(field.type) or types.is_large_string(field.type):
            lengths = compute.binary_length(table[field.name])
            longest = compute.max(lengths).as_py() or 0
            if longest > LONGEST_TEXT:
                row = compute.index(lengths, longest).as_py() + 1
                raise UserError(
                    f"{path}, row {row}: {field.name} has {longest:,} bytes, more than {LONGEST_TEXT:,}: split it"
                )


def read_text(path: Path, encoding: str | None = None) -> tuple[bytes, str]:
    """Read a text file; return it in UTF-8 without a mark, and the name of the encoding that it has.

    ``encoding``, as ``data.encoding``, is that of a file which is neither UTF-8 nor UTF-16 with its mark. It also
    decides where all bytes are below 128, because some encodings use no others.

    Raises:
        UserError: the encoding has to be named, is another one, or is none of texts.
    """
    content = path.read_bytes()
    used = encoding or "utf-8"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and content[2:4] != b"\0\0":
        used = "utf-16"
    elif not content.isascii() and _is_utf8(content, path):
        used = "utf-8"
    is_packed = encoding is None and used == "utf-8" and b"\0" in content.partition(b"\n")[0]
    try:
        text = "" if is_packed else content.decode(used)
    except UnicodeError as error:
        line = 1 + content.count(b"\n", 0, getattr(error, "start", 0))
        advice = "such as data.encoding=windows-1251, shift_jis or latin-1"
        raise UserError(
            f"{path} is not in {used.upper()} (line {line}): save it in UTF-8, or name its encoding, {advice}"
        ) from None
    if is_packed or "\0" in text.partition("\n")[0]:
        raise UserError(f"{path} is packed, or no text in {used.upper()}: unpack it, or save it in UTF-8")
    return (content if used == "utf-8" else text.encode()).removeprefix(codecs.BOM_UTF8), used


def _is_utf8(content: bytes, path: Path) -> bool:
    """Return whether bytes are UTF-8; raise UserError if most are: read otherwise, most would be garbled."""
    text = content.decode(errors="surrogateescape")
    wrong = [match.start() for match in NOT_UTF8.finditer(text)]
    if wrong and sum(character > "\x7f" for character in text) > 2 * len(wrong):
        where = f"{format_count(len(wrong), 'byte')} (the first: line {1 + text.count(chr(10), 0, wrong[0])})"
        raise UserError(f"{path} is in UTF-8 but for {where}: correct the text there")
    return not wrong


def _read_delimited(path: Path, encoding: str | None, **settings: Any) -> Any:
    """Read a file that begins with a line of names; every column is text. ``settings``: for pyarrow's parser.

    If a row is longer than pyarrow's blocks of 1 MiB, larger blocks are used.
    """
    import pyarrow
    from pyarrow import csv

    content, used = read_text(path, encoding)
    unusual = [] if used == "utf-8" else [used]
    if "delimiter" not in settings and (named := EXCELS_FIRST_LINE.match(content)):
        content = content[named.end() :]
    if "delimiter" not in settings and (separator := _find_separator(content)) != ",":
        settings["delimiter"] = separator
        unusual.append(SEPARATORS[separator])
    options = csv.ParseOptions(**settings)

    def read(blocks: Any) -> Any:
        with csv.open_csv(pyarrow.BufferReader(content), read_options=blocks, parse_options=options) as reader:
            names = reader.schema.names
        types = csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()))
        return csv.read_csv(
            pyarrow.BufferReader(content), read_options=blocks, parse_options=options, convert_options=types
        )

    try:
        table = read(csv.ReadOptions())
    except pyarrow.ArrowInvalid as error:
        if "straddl" not in str(error):
            raise
        table = read(csv.ReadOptions(block_size=min(len(content) + 1, LARGEST_BLOCK)))
    if (lines := _check_line_breaks(table, options.delimiter, path)) > MANY_LINES:
        unusual.append(f"a text of {lines:,} lines")
    return table.replace_schema_metadata({READ_AS: "".join(f", {word}" for word in unusual)})


def _check_line_breaks(table: Any, separator: str, path: Path) -> int:
    """Return the most lines of a row; raise UserError if a field holds rows, as one whose quote is not closed does.

    It holds rows if each of its lines, with what stands beside the field, has a value for each column, and many lines
    have no more, or each has a value as its column, counted from either end, has them: one that occurs twice, as
    labels do, or a number where all are numbers.
    """
    import numpy as np
    from pyarrow import compute

    breaks = np.array([compute.match_substring_regex(column, "[\r\n]").to_numpy() for column in table.columns])
    broken = np.flatnonzero(breaks.any(0)).tolist()
    most, width = 1, table.num_columns
    fits = [_describe_values(column) for column in table.columns] if broken else []
    for row in broken:
        lines = LINE_BREAK.split(separator.join(column[row].as_py() for column in table.columns).rstrip("\r\n"))
        most = max(most, len(lines))
        rows = [line.split(separator) for line in lines]
        if width == 1 or len(rows) == 1 or any(len(fields) < width for fields in rows):
            continue
        known = all(any(fit(fields[i]) or fit(fields[i - width]) for i, fit in enumerate(fits)) for fields in rows)
        if known or (len(rows) > MANY_LINES and all(len(fields) == width for fields in rows)):
            name = table.column_names[breaks[:, row].argmax()]
            raise UserError(
                f"{path}, row {row + 1}: {name} opens with a quote and goes on over {len(lines)} lines that look "
                "like rows: close the quote, or write the file as JSON Lines if it is one text"
            )
    return most


def _describe_values(column: Any) -> Callable[[str], bool]:
    """Return whether a text is as those values of a column that occur twice, or as all if these are numbers."""
    counts = column.value_counts().to_pylist()
    common = {entry["values"] for entry in counts if entry["values"] and entry["counts"] > 1}
    has_numbers = all(NUMBER.fullmatch(value) for entry in counts if not LINE_BREAK.search(value := entry["values"]))
    return lambda text: text in common or bool(has_numbers and NUMBER.fullmatch(text))


def _find_separator(content: bytes) -> str:
    """Return the comma if the line of names has one outside of quotes, else the first other mark that it has."""
    names = re.sub(r'"[^"]*"', "", content.partition(b"\n")[0].decode(errors="replace"))
    return next((mark for mark in (",", *SEPARATORS) if mark in names), ",")


def _read_json_lines(path: Path, _: str | None) -> Any:
    """Read a file with one JSON object a line; texts that look like dates stay texts."""
    import pyarrow
    from pyarrow import json

    _refuse_deep_nesting(path)
    options = json.ReadOptions(block_size=max(1 << 20, path.stat().st_size + 1))  # no line is cut in two
    table = json.read_json(path, options)
    dates = [field.name for field in table.schema if pyarrow.types.is_timestamp(field.type)]
    if not dates:
        return table
    schema = pyarrow.schema([(name, pyarrow.string()) for name in dates])
    return json.read_json(path, options, json.ParseOptions(explicit_schema=schema))


def _refuse_deep_nesting(path: Path) -> None:
    import numpy as np

    others = bytes(set(range(256)) - set(b"[]{}\n"))
    marks = np.frombuffer(JSON_STRING.sub(b"", path.read_bytes()).translate(None, others), np.uint8)
    steps = np.isin(marks, list(b"[{")).astype(np.int64) - np.isin(marks, list(b"]}"))
    too_deep = np.flatnonzero(np.cumsum(steps) > DEEPEST_NESTING)
    if len(too_deep):
        line = 1 + np.count_nonzero(marks[: too_deep[0]] == ord("\n"))
        raise UserError(
            f"{path}, line {line}: lists or mappings are nested more than {DEEPEST_NESTING} deep: drop them"
        )


def _read_parquet(path: Path, _: str | None) -> Any:
    import pyarrow.parquet

    rows = pyarrow.parquet.read_metadata(path).num_rows
    if rows > MOST_ROWS:
        raise UserError(f"{path} has {rows:,} rows, more than {MOST_ROWS:,}: name a part of it")
    return pyarrow.parquet.read_table(path)


def _decode_bytes(table: Any) -> Any:
    """Make texts of the columns that are bytes in UTF-8, as some programs write the texts of Parquet; others stay."""
    import pyarrow

    for place, field in enumerate(table.schema):
        kind = field.type.value_type if pyarrow.types.is_dictionary(field.type) else field.type
        if pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind):
            with contextlib.suppress(pyarrow.ArrowInvalid):
                table = table.set_column(place, field.name, table.column(place).cast(kind).cast(pyarrow.string()))
    return table


READERS: dict[str, Callable[[Path, str | None], Any]] = {
    "CSV": partial(_read_delimited, newlines_in_values=True),
    "TSV": partial(_read_delimited, delimiter="\t", quote_char=False),
    "JSON Lines": _read_json_lines,
    "Parquet": _read_parquet,
}


@contextlib.contextmanager
def handle_parquet_errors(path: Path) -> Iterator[None]:
    """Raise UserError instead of what pyarrow raises for a file that is damaged or no Parquet."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} can't be read as Parquet: {extract_first_line(error)}") from error


def require_columns(schema: Any, columns: Sequence[str], where: str) -> None:
    """Raise UserError, which names ``where``, unless an Arrow schema has the columns.

    ``translation.en`` is field en of struct translation. A struct counts by its fields, not as a whole.
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
        fields = any(name.startswith(f"{missing[0]}.") for name in names)
        advice = ": write the fields of its mappings as columns" if fields else ""
        raise UserError(f"{where} lacks the column {', '.join(missing)}; it has: {', '.join(names)}{advice}")


def has_column(path: Path, name: str) -> bool:
    """Return whether a Parquet file has a column."""
    import pyarrow.parquet

    with handle_parquet_errors(path):
        return name in pyarrow.parquet.read_schema(path).names


def read_columns(path: Path, columns: Sequence[str]) -> Any:
    """Read a Parquet file's columns as a ``pyarrow.Table``; of a dotted name, the whole struct."""
    import pyarrow.parquet

    require_regular_file(path)
    with handle_parquet_errors(path):
        require_columns(pyarrow.parquet.read_schema(path), columns, str(path))
        top_columns = dict.fromkeys(name.partition(".")[0] for name in columns)
        return _decode_bytes(pyarrow.parquet.read_table(path, columns=list(top_columns)))


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
