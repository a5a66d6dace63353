"""Read a user's CSV, TSV, JSON Lines and Parquet files as ``pyarrow.Table``; what can be read in two ways is refused.

Columns of CSV and TSV are texts, so that no text such as "null", "1e5" or a date becomes something else. CSV is read
strictly: a quote closes before a separator or a line's end, and each row has a field for each column. In TSV a quote
is a character like any other, as in GLUE's own files. What spreadsheets make of CSV is read too: fields between
semicolons, tabs or bars. A text is in UTF-8, or in UTF-16 if its mark says so, or in the encoding that is named.
"""

import codecs
import contextlib
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, doing
from isobench.common.files import cache_until_changed
from isobench.common.terminal import format_count, print_note_once
from isobench.data.labels import NUMBER

FORMATS = {
    ".csv": "CSV", ".tsv": "TSV", ".jsonl": "JSON Lines", ".ndjson": "JSON Lines", ".json": "JSON Lines",
    ".parquet": "Parquet",
}  # fmt: skip
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
READ_AS = b"read as"  # in a table's metadata: how a file is written that is no usual one of its format
EXCELS_FIRST_LINE = re.compile(r"sep=([;,\t|])\r?\n")
LINE_BREAK = re.compile(r"\r\n?|\n")
REPLACED = "\N{REPLACEMENT CHARACTER}"  # what a program writes in the place of bytes that it could not read
# Characters of packed files, of UTF-16 without its mark, and of encodings that shift between alphabets. Where an
# encoding is named, also those that come of naming latin-1 for another.
NO_TEXT = {False: re.compile("[\0\x0e\x0f\x1b]"), True: re.compile("[\0\x0e\x0f\x1b\x80-\x9f]")}


def find_format(path: Path) -> str:
    """Return the format of a file by the ending of its name."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"data.files: {path} must end in one of {', '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()]


def describe_format(path: Path, encoding: str | None) -> str:
    """Say what decides how a file's bytes are read: its format, and ``data.encoding`` where the format takes it."""
    kind = find_format(path)
    return f"{kind} in {codecs.lookup(encoding).name}" if encoding and kind in ("CSV", "TSV") else kind


@partial(cache_until_changed, limit=4)  # the files of a task
def read_own_file(path: Path, encoding: str | None = None) -> Any:
    """Read all columns of a file as a ``pyarrow.Table``; one that has not changed since is not read again.

    ``encoding``: as ``data.encoding``, of CSV and TSV that are not in UTF-8.
    """
    kind = find_format(path)
    with doing(f"{path} can't be read as {kind}"):
        table = _decode_bytes(READERS[kind](path, encoding))
        table.validate(full=True)  # that texts are UTF-8
    if not table.num_rows:
        raise UserError(f"{path} has no rows")
    twice = [name for name, count in Counter(table.column_names).items() if count > 1]
    if twice:
        raise UserError(f"{path} has two columns with the name {twice[0]}: rename one")
    return table


def describe_reading(table: Any) -> str:
    """Say how a file is written if it is no usual one of its format: ``, cp1251, semicolons``."""
    return (table.schema.metadata or {}).get(READ_AS, b"").decode()


def read_text(path: Path, encoding: str | None = None) -> tuple[str, str]:
    """Read a text file; return it without its mark, and the name of its encoding.

    The encoding is the named one, else UTF-16 if the file has its mark, else UTF-8.

    Raises:
        UserError: the bytes are not in this encoding, or some are surely in another.
    """
    content = path.read_bytes()
    has_mark = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and content[2:4] != b"\0\0"
    used = encoding or ("utf-16" if has_mark else "utf-8")
    is_json = FORMATS.get(path.suffix.lower()) == "JSON Lines"
    advice = "save all files in UTF-8"
    advice += "" if is_json else ", or in one encoding that you name (data.encoding=windows-1251)"
    try:
        text = content.decode(used)
    except UnicodeError as error:
        line = 1 + content.count(b"\n", 0, getattr(error, "start", 0))
        raise UserError(f"{path}, line {line}, is not in {used.upper()}: {advice}") from None
    if encoding and (line := _find_utf8(content, encoding, len(text))):
        raise UserError(f"{path}, line {line}, is in UTF-8, and data.encoding={encoding}: {advice}")
    if NO_TEXT[encoding is not None].search(text):
        raise UserError(f"{path} is packed, or no text in {used.upper()}: {advice}")
    if count := text.count(REPLACED):
        print_note_once(f"{path} has {format_count(count, 'replacement character')} ({REPLACED}): letters are lost")
    return text.removeprefix("\ufeff"), used


def _find_utf8(content: bytes, encoding: str, characters: int) -> int:
    """Return the first line that is UTF-8, though another encoding is named, counted from 1; 0 if none is.

    In an encoding of one byte a character, no line of texts is UTF-8 by chance. In others a short one may be, so all
    have to be.
    """
    if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
        return 0
    lines = {line: number for number, line in enumerate(content.splitlines(), 1) if not line.isascii()}
    found = [number for line, number in lines.items() if line.decode(errors="replace").encode() == line]
    return found[0] if found and (characters == len(content) or len(found) == len(lines)) else 0


def _read_delimited(path: Path, encoding: str | None, separator: str = "", quoting: Any = csv.QUOTE_MINIMAL) -> Any:
    """Read a file that begins with a line of names; every column is text. ``separator``: found if it is empty."""
    import pyarrow

    text, used = read_text(path, encoding)
    unusual = [] if used == "utf-8" else [used]
    skipped = 0
    if not separator:
        named = EXCELS_FIRST_LINE.match(text)
        skipped, text = int(named is not None), text[named.end() if named else 0 :]
        separator = _find_separator(text)
        unusual += [SEPARATORS[separator]] * (separator != ",")
    csv.field_size_limit(2**31 - 1)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=quoting, strict=True)
    rows: list[list[str]] = []
    start = 1
    try:
        for row in lines:
            if row and rows and len(row) != len(rows[0]):
                raise csv.Error(f"fields: {len(row)}, and columns: {len(rows[0])}")
            rows += [row] * bool(row)  # blank lines are left out
            start = lines.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}, line {start + skipped}: {error} (close each quote; write one within quotes twice, as in "
            '"say ""no""")'
        ) from None
    names, *rows = rows or [[]]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
    if broken := _check_line_breaks(names, columns, separator, path):
        unusual.append(f"{format_count(broken, 'row')} of several lines")
    table = pyarrow.Table.from_arrays([pyarrow.array(column, pyarrow.string()) for column in columns], names)
    return table.replace_schema_metadata({READ_AS: "".join(f", {word}" for word in unusual)})


def _find_separator(text: str) -> str:
    """Return the comma if the line of names has one outside of quotes, else the first other mark that it has."""
    names = re.sub(r'"[^"]*"', "", LINE_BREAK.split(text, maxsplit=1)[0])
    return next((mark for mark in (",", *SEPARATORS) if mark in names), ",")


def _check_line_breaks(names: list[str], columns: list[list[str]], separator: str, path: Path) -> int:
    """Count the rows with a line break in a field; raise UserError if a field holds rows.

    A quote that opens by mistake, and closes at another mistake, makes one field of several rows. Between two of its
    lines a row would end: the lines before hold values of the columns to the right, those behind of the columns to
    the left. A field is refused if most of them do, for one column: values that other rows have twice, or numbers, in
    a column of numbers, in their place. A single column tells nothing: it may have no line breaks.
    """
    texts = ((row, i, text) for i, column in enumerate(columns) for row, text in enumerate(column))
    places = [(row, i) for row, i, text in texts if LINE_BREAK.search(text)]
    known = [_know_values(column) for column in columns] if places else []
    for row, place in places:
        whole = filter(str.strip, LINE_BREAK.split(columns[place][row]))
        lines = [[part.strip(' "\t') for part in line.split(separator)] for line in whole]
        for i, (values, are_numbers) in enumerate(known):
            if i == place and len(names) > 1 == max(map(len, lines)):  # lines of a text, which may be others' texts
                continue
            ends = [parts for parts in (lines[1:] if i < place else lines[:-1]) if len(parts) > abs(i - place)]
            # Where the column's value would stand in a row of its own: counted from the start, or from the end.
            own = slice(i, i + 1) if i < place else slice(i - len(names), i - len(names) + 1 or None)
            held = [p for p in ends if values & {*p} or (are_numbers and any(map(NUMBER.fullmatch, p[own])))]
            if len(names) == 1 or 2 * len(held) > len(lines) - 1:
                raise UserError(
                    f"{path}, row {row + 1}: {names[place]} opens with a quote and goes on over {len(lines)} lines "
                    "that may be rows: close it, or write the file as JSON Lines if it is one text"
                )
    return len(dict(places))  # rows


def _know_values(column: list[str]) -> tuple[set[str], bool]:
    """Return the values that a column has twice, and whether it is one of numbers that mostly differ."""
    counts = Counter(value.strip() for value in column if not LINE_BREAK.search(value))
    common = {value for value, count in counts.items() if count > 1 and value}
    return common, 2 * len(common) < len(counts) and all(map(NUMBER.fullmatch, counts))


def _read_json_lines(path: Path, _: str | None) -> Any:
    """Read a file with one JSON object a line; it is in UTF-8, whatever encoding is named for other files."""
    from isobench.common.tidy import make_table

    rows = []
    for number, line in enumerate(read_text(path)[0].split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line, object_pairs_hook=_make_mapping))
                if not isinstance(rows[-1], dict):
                    raise ValueError("it has no names of columns")
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, line {number}, is no JSON object: {error}") from None
    return make_table(rows)


def _make_mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name stands in it twice")
    return made


def _read_parquet(path: Path, _: str | None) -> Any:
    import pyarrow.parquet

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
    "CSV": _read_delimited,
    "TSV": partial(_read_delimited, separator="\t", quoting=csv.QUOTE_NONE),
    "JSON Lines": _read_json_lines,
    "Parquet": _read_parquet,
}


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

    with doing(f"{path} can't be read as Parquet"):
        return name in pyarrow.parquet.read_schema(path).names


def read_columns(path: Path, columns: Sequence[str]) -> Any:
    """Read a Parquet file's columns as a ``pyarrow.Table``; of a dotted name, the whole struct."""
    import pyarrow.parquet

    with doing(f"{path} can't be read as Parquet"):
        require_columns(pyarrow.parquet.read_schema(path), columns, str(path))
        top_columns = dict.fromkeys(name.partition(".")[0] for name in columns)
        return _decode_bytes(pyarrow.parquet.read_table(path, columns=list(top_columns)))


def read_fields(path: Path, names: Sequence[str]) -> list[list[Any]]:
    """Read the values of columns of a Parquet file, or of a struct's fields for dotted names."""
    table = read_columns(path, names)
    return [read_field(table, name) for name in names]


def read_field(table: Any, name: str) -> list[Any]:
    """Return the values of a table's column, or of a struct's field for a dotted name."""
    import pyarrow.compute

    top_column, *path = name.split(".")
    column = table[top_column]
    return (pyarrow.compute.struct_field(column, path) if path else column).to_pylist()
