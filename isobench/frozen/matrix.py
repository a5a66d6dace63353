"""Read anybody's vectors, labels, scored pairs and texts; no code in a file is run.

.npy, .safetensors and .pt files are memory-mapped; .npz and .parquet are read whole.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isobench.common.errors import UserError, doing, refuse
from isobench.common.files import require_regular_file
from isobench.common.linalg import Array
from isobench.common.progress import track_progress
from isobench.common.terminal import format_count, name_some
from isobench.data.labels import LABEL_NAMES, check_classes, format_labels, parse_number
from isobench.data.tables import read_own_file, read_text

PAIR_COLUMNS = (("first", "second", "score"), ("sentence1", "sentence2", "score"))
NUMBERED = re.compile(r"(.*?)[0-9]+")  # a column of a numbered family, such as x12
WORD_VECTOR = re.compile(r"\S+( -?\d+(\.\d+)?(e-?\d+)?){8,}\s*$")  # a line of a text file of word vectors
BATCH_NUMBERS = 1 << 21  # of one batch
INDEX = re.compile(r"\+?[0-9]{1,18}(\.0*)?")


def read_vectors(path: Path, key: str | None = None, leave_out: Sequence[str] = ()) -> tuple[Array, list[str]]:
    """Read vectors [N, d] from a file, as they are stored there, and what the user should know of the reading.

    Args:
        path: .npy, .npz, .parquet, .safetensors or .pt.
        key: which array of a file with several, or which list column of a Parquet file.
        leave_out: columns of a Parquet file that are no coordinates, such as the labels.

    No code in a file is run: pickled objects are not read.
    """
    require_regular_file(path)
    with doing(f"reading vectors of {path}"):
        vectors, notes = READERS[path.suffix.lower()](path, key, leave_out)
    return check_vectors(vectors, str(path)), notes


def check_vectors(vectors: Any, where: str) -> Array:
    """Return vectors [N, d]; raise UserError unless they are a matrix of real numbers."""
    import torch

    if not isinstance(vectors, np.ndarray | torch.Tensor):
        vectors = np.asarray(vectors)
    kind = str(vectors.dtype).removeprefix("torch.")
    is_dense = getattr(vectors, "layout", torch.strided) == torch.strided and not isinstance(
        vectors, np.ma.MaskedArray
    )
    refuse(
        (not re.fullmatch(r"[<>]?(b?float|u?int|[fiu])\d+|bool", kind), f"{where} has values of type {kind}"),
        (not is_dense, f"{where} is sparse or masked: write out all its numbers"),
        (vectors.ndim != 2, f"{where} has the shape {list(vectors.shape)}: vectors are one row a text, [N, d]"),
    )
    return vectors


def read_rows(vectors: Array, rows: slice | np.ndarray) -> np.ndarray:
    """Copy rows of vectors as float32, or as float64 where float32 is too coarse for their type."""
    import torch

    part = vectors[rows]
    if isinstance(part, torch.Tensor):
        part = part.detach().cpu()
        part = (part.float() if part.dtype == torch.bfloat16 else part).numpy()
    precise = part.dtype.itemsize > (2 if part.dtype.kind in "iu" else 4)
    return np.array(part, np.float64 if precise else np.float32, order="C")


def split_rows(vectors: Array, label: str) -> Iterator[slice]:
    """Yield the rows of each batch of vectors [N, d], with a progress bar labelled so."""
    step = max(1, BATCH_NUMBERS // max(1, int(vectors.shape[1])))
    for start in track_progress(range(0, len(vectors), step), label):
        yield slice(start, start + step)


def describe_missing(missing: np.ndarray) -> str:
    """Say how many rows were left out; ``missing`` [N]: which, at least one."""
    first = int(missing.argmax())
    return f"{format_count(int(missing.sum()), 'row')} with NaN or infinity left out, first row {first} (from 0)."


def _choose(arrays: dict[str, str], key: str | None, path: Path | str) -> str:
    """Return the key of a file's only array, or the one that is asked for; ``arrays``: keys with their shapes."""
    name = next(iter(arrays)) if key is None and len(arrays) == 1 else key
    listed = ", ".join(f"{name} {shape}" for name, shape in list(arrays.items())[:8])
    refuse((name not in arrays, f"{path}: choose an array with --key NAME; it has: {listed}"))
    return str(name)


def _read_npy(path: Path, key: str | None, _: Sequence[str]) -> tuple[Any, list[str]]:
    refuse((key, f"{path} has one array: leave out --key"))
    return np.load(path, mmap_mode="r", allow_pickle=False), []


def _read_npz(path: Path, key: str | None, _: Sequence[str]) -> tuple[Any, list[str]]:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[_choose(dict.fromkeys(arrays.files, ""), key, path)], []


def _read_safetensors(path: Path, key: str | None, _: Sequence[str]) -> tuple[Any, list[str]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        shapes = {name: str(list(file.get_slice(name).get_shape())) for name in file.keys()}  # noqa: SIM118
        return file.get_tensor(_choose(shapes, key, path)), []


def _read_pt(path: Path, key: str | None, _: Sequence[str]) -> tuple[Any, list[str]]:
    import torch

    loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if isinstance(loaded, dict):
        tensors = {str(name): value for name, value in loaded.items() if isinstance(value, torch.Tensor)}
        loaded = tensors[_choose({name: str(list(value.shape)) for name, value in tensors.items()}, key, path)]
    else:
        refuse((key, f"{path} has one array: leave out --key"))
    return loaded.detach(), []


def _read_parquet(path: Path, key: str | None, leave_out: Sequence[str]) -> tuple[Any, list[str]]:
    return read_table(read_own_file(path), str(path), key, leave_out)


def as_table(frame: Any) -> Any:
    """Return a data frame of any library as a ``pyarrow.Table``; None for an array or tensor."""
    import pyarrow

    if isinstance(frame, pyarrow.Table) or not hasattr(frame, "columns"):
        return frame if isinstance(frame, pyarrow.Table) else None
    return pyarrow.table(frame)


def read_table(
    table: Any, where: str, key: str | None = None, leave_out: Sequence[str] = ()
) -> tuple[np.ndarray, list[str]]:
    """Read vectors from a table, and say which columns they are.

    They are a list column, else the numeric columns whose names differ in the number at their end alone, such as x0
    to x383, if most do. Else they are all but labels, and but whole numbers beside fractions: counts, years, ids.
    Where all numbers are whole, only those that differ in each row are left out. pandas' index is never one.
    """
    from pyarrow import compute, types

    lists = {
        field.name: str(field.type)
        for field in table.schema
        if types.is_list(field.type) or types.is_large_list(field.type) or types.is_fixed_size_list(field.type)
    }
    if key is not None or lists:
        name = _choose(lists, key, where)
        lengths = compute.list_value_length(table[name]).to_numpy()
        refuse(
            ((lengths != lengths[:1]).any(), f"{where}, column {name}: its lists differ in length")
        )  # NaN: no list
        values = compute.list_flatten(table[name]).to_numpy()
        return values.reshape(len(lengths), -1), [f"The vectors are the list column {name}."]
    kinds = (types.is_floating, types.is_integer, types.is_decimal)
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])  # names, or a range that is no column
    numeric = [
        field.name
        for field in table.schema
        if any(is_kind(field.type) for is_kind in kinds)
        and field.name not in (*leave_out, *index)
        and not field.name.startswith("__index_level_")
    ]
    family = _find_family(numeric)
    chosen = family or [name for name in numeric if name.lower() not in LABEL_NAMES]
    columns = [table[name].cast("float64") if types.is_decimal(table[name].type) else table[name] for name in chosen]
    vectors = np.stack([column.to_numpy() for column in columns], 1)
    if not family:
        has_fractions = bool((np.isfinite(vectors) & (vectors != np.round(vectors))).any())
        kept = ~find_whole_numbers(vectors, each_once=not has_fractions)
        if kept.any():
            chosen, vectors = [name for name, is_kept in zip(chosen, kept, strict=True) if is_kept], vectors[:, kept]
    ends = f"{chosen[0]} to {chosen[-1]}" if family and len(family) > 1 else name_some(chosen, limit=40)
    others = name_some(
        sorted([name for name in table.column_names if name not in chosen], key=lambda name: name not in numeric)
    )
    note = f"The coordinates are the {len(chosen)} numeric columns {ends}{'; left out: ' * bool(others)}{others}."
    return vectors, [note]


def _find_family(names: Sequence[str]) -> list[str]:
    """Return the names that differ in the number at their end alone, such as x0 to x383; empty unless most do."""
    stems = {name: numbered[1] for name in names if (numbered := NUMBERED.fullmatch(name))}
    stem, count = max(Counter(stems.values()).items(), key=lambda item: item[1], default=("", 0))
    return [name for name, own in stems.items() if own == stem] if 2 * count > len(names) and count > 1 else []


def find_whole_numbers(vectors: np.ndarray, each_once: bool) -> np.ndarray:
    """Find the columns of a matrix [N, d] that hold different whole numbers, and NaN, alone: [d] bool.

    With ``each_once``, no number occurs twice, as in a column of ids.
    """

    def is_one(column: np.ndarray) -> bool:
        known = column[np.isfinite(column)]
        if not (known == np.round(known)).all():
            return False
        different = len(np.unique(known))
        return different > 1 and (different == len(known) or not each_once)

    return np.array([is_one(column) for column in vectors.T], bool)


READERS: dict[str, Callable[[Path, str | None, Sequence[str]], tuple[Any, list[str]]]] = {
    ".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet, ".safetensors": _read_safetensors,
    ".pt": _read_pt, ".pth": _read_pt,
}  # fmt: skip


def read_column(source: Any, column: str, encoding: str | None = None) -> list[Any]:
    """Read a column of a CSV, TSV, JSON Lines or Parquet file, or of a ``pyarrow.Table``."""
    table = read_own_file(source, encoding) if isinstance(source, Path) else source
    with doing(str(source) if isinstance(source, Path) else "X"):
        return table[column].to_pylist()


def read_texts(path: Path, column: str | None, encoding: str | None = None) -> list[str]:
    """Read texts: the lines of a .txt file, or a column of a table; no row is left out.

    ``encoding``, here and below: as ``data.encoding``.
    """
    require_regular_file(path)
    texts: list[Any] = []
    if path.suffix.lower() == ".txt":
        texts = _read_lines(path, encoding)
        is_vectors = len(texts) > 1 and all(WORD_VECTOR.match(line) for line in texts[1:4])
        refuse((is_vectors, f"{path} looks like word vectors: use encoder=word_vectors encoder.path={path}"))
    else:
        refuse((column is None, f"{path}: name the column of the texts, --text COLUMN"))
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
        require_regular_file(file)
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
    refuse(
        (len(different) > rows / 2, f"{where}: {len(different):,} different labels of {rows:,} rows are no classes")
    )
    return classes.astype(np.int64)


def read_pairs(path: Path, encoding: str | None = None) -> tuple[list[Any], list[Any], list[Any]]:
    """Read scored pairs from a table: the columns first, second (rows from 0, or texts) and score."""
    table = read_own_file(path, encoding)
    names = next((names for names in PAIR_COLUMNS if set(names) <= set(table.column_names)), PAIR_COLUMNS[0])
    with doing(f"reading pairs of {path}"):
        first, second, scores = (table[name].to_pylist() for name in names)
    return first, second, scores


def number_pairs(
    pairs: Sequence[Any], rows: int, places: dict[str, int] | None = None, where: str = "pairs"
) -> tuple[np.ndarray, np.ndarray]:
    """Check scored pairs (first, second, scores) of N rows; return their row numbers [P, 2] and scores [P].

    ``places``: the row of each text, where the pairs name texts.
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
    values = np.array(numbers, np.float64)
    return np.array([int(float(end)) for end in ends]).reshape(2, -1).T, values
