"""Read texts, labels and scored pairs of anybody's rows."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isobench.common.errors import UserError, doing, refuse
from isobench.data.labels import check_classes, format_labels, parse_number
from isobench.data.tables import read_own_file, read_text

PAIR_COLUMNS = (("first", "second", "score"), ("sentence1", "sentence2", "score"))
WORD_VECTOR = re.compile(r"\S+( -?\d+(\.\d+)?(e-?\d+)?){8,}\s*$")  # a line of a text file of word vectors
INDEX = re.compile(r"\+?[0-9]{1,18}(\.0*)?")


def read_column(source: Any, column: str, encoding: str | None = None) -> list[Any]:
    """Read a column of a CSV, TSV, JSON Lines or Parquet file, or of a ``pyarrow.Table``."""
    table = read_own_file(source, encoding) if isinstance(source, Path) else source
    with doing(str(source) if isinstance(source, Path) else "X"):
        return table[column].to_pylist()


def read_texts(path: Path, column: str | None, encoding: str | None = None) -> list[str]:
    """Read texts: the lines of a .txt file, or a column of a table; no row is left out.

    ``encoding``, here and below: as ``data.encoding``.
    """
    texts: list[Any] = []
    if path.suffix.lower() == ".txt":
        texts = _read_lines(path, encoding)
        is_vectors = len(texts) > 1 and all(WORD_VECTOR.match(line) for line in texts[1:4])
        refuse((is_vectors, f"{path} looks like word vectors: use encoder=word_vectors encoder.path={path}"))
    else:
        remedy = "name the column of the texts, --text COLUMN (vectors come from .npy or .parquet)"
        refuse((column is None, f"{path}: {remedy}"))
        texts = read_column(path, str(column), encoding)
    empty = next((row for row, text in enumerate(texts) if not isinstance(text, str) or not text.strip()), None)
    refuse((not texts, f"{path} has no texts"))
    refuse((empty is not None, f"{path}: row {empty} (from 0) has no text: remove it, and its label if it has one"))
    return texts


def _read_lines(path: Path, encoding: str | None) -> list[str]:
    lines = read_text(path, encoding)[0].split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def read_labels(named: str, source: Any, encoding: str | None = None) -> list[Any] | np.ndarray:
    """Read labels from a .npy or .txt file (one a line), else from the column of this name of the vectors' source.

    ``source``: the file of the vectors, or a ``pyarrow.Table``; None if they are an array.
    """
    file = Path(named).expanduser()
    if file.suffix.lower() in (".npy", ".txt"):
        if file.suffix.lower() == ".txt":
            return _read_lines(file, encoding)
        with doing(f"reading labels of {file}"):
            return np.load(file, allow_pickle=False)
    refuse((source is None, f"--labels {named}: name a .npy or .txt file, or a column if the vectors are in a table"))
    return read_column(source, named, encoding)


def make_classes(labels: Any, rows: int, where: str = "labels") -> np.ndarray:
    """Number classes from 0: any labels of N rows -> [N] int64; UserError for what are no classes of the rows."""
    values = np.asarray(labels.cpu() if hasattr(labels, "cpu") else labels)
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    refuse((values.shape != (rows,), f"{where}: there are labels of shape {values.shape} for {rows:,} rows"))
    names = format_labels(values.tolist(), where)
    check_classes(names, where, ", or number the classes from 0")
    different, classes = np.unique(values if values.dtype.kind in "iub" else names, return_inverse=True)
    many = f"{where}: {len(different):,} different labels of {rows:,} rows are no classes"
    refuse((len(different) > rows / 2, many))
    return classes.astype(np.int64)


def read_pairs(path: Path, encoding: str | None = None) -> tuple[list[Any], list[Any], list[Any]]:
    """Read scored pairs from a table: the columns first, second (rows from 0, or texts) and score."""
    table = read_own_file(path, encoding)
    names = next((names for names in PAIR_COLUMNS if set(names) <= set(table.column_names)), PAIR_COLUMNS[0])
    with doing(f"reading pairs of {path}"):
        first, second, scores = (table[name].to_pylist() for name in names)
    ends = enumerate(zip(first, second, strict=True))
    empty = next((row for row, pair in ends if any(end is None or not str(end).strip() for end in pair)), None)
    refuse((empty is not None, f"{path}: row {empty} (from 0) lacks a text: remove it"))
    return first, second, scores


def number_pairs(
    pairs: Sequence[Any], rows: int, places: dict[str, int] | None = None, where: str = "pairs"
) -> tuple[np.ndarray, np.ndarray]:
    """Check scored pairs (first, second, scores) of N rows; return their row numbers [P, 2] and scores [P].

    ``places``: the row of each text, where pairs may name texts. If all name whole numbers, and one of these is no
    text of X, they are row numbers.
    """
    columns = [np.asarray(column).ravel().tolist() for column in pairs]
    refuse((len(set(map(len, columns))) > 1, f"{where}: give as many first rows as second rows and scores"))
    first, second, scores = columns
    ends = [*first, *second]
    is_index = all(INDEX.fullmatch(str(end)) for end in ends)
    if places is not None and (not is_index or set(map(str, ends)) <= places.keys()):
        ends = [places.get(str(end), end) for end in ends]
    wrong = [end for end in ends if not INDEX.fullmatch(str(end)) or int(float(end)) >= rows]
    numbers = [parse_number(str(score)) for score in scores]
    if wrong:
        raise UserError(f"{where}: {str(wrong[0])[:60]} is no text of X, and no row: rows are 0 to {rows - 1:,}")
    refuse((None in numbers, f"{where}: a score is no finite number"))
    return np.array([int(float(end)) for end in ends]).reshape(2, -1).T, np.array(numbers, np.float64)
