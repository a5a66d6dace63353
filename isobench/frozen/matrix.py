"""Read anybody's vectors; no code in a file is run.

.npy, .safetensors and .pt files are memory-mapped; .npz and .parquet are read whole.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from isobench.common.errors import doing, refuse
from isobench.common.linalg import Array
from isobench.common.progress import track_progress
from isobench.common.terminal import format_count, name_some
from isobench.data.labels import LABEL_NAMES
from isobench.data.tables import read_own_file

NUMBERED = re.compile(r"(.*?)([0-9]+)")  # a column of a numbered family, such as x12
BATCH_NUMBERS = 1 << 21  # of one batch


def read_vectors(path: Path, key: str | None = None, leave_out: Sequence[str] = ()) -> tuple[Array, list[str]]:
    """Read vectors [N, d] from a file, as they are stored there, and what the user should know of the reading.

    Args:
        path: .npy, .npz, .parquet, .safetensors or .pt.
        key: which array of a file with several, or which list column of a Parquet file.
        leave_out: columns of a Parquet file that are no coordinates, such as the labels.

    No code in a file is run: pickled objects are not read.
    """
    is_known = path.suffix.lower() in READERS
    refuse((not is_known, f"{path} is no file of vectors ({', '.join(READERS)}) nor of texts (.txt, .jsonl, ...)"))
    with doing(f"reading vectors of {path}"):
        vectors, notes = READERS[path.suffix.lower()](path, key, leave_out)
    return check_vectors(vectors, str(path)), notes


def check_vectors(vectors: Any, where: str) -> Array:
    """Return vectors [N, d]; raise UserError unless they are a matrix of real numbers."""
    import torch

    if not isinstance(vectors, np.ndarray | torch.Tensor):
        vectors = np.asarray(vectors)
    kind = str(vectors.dtype).removeprefix("torch.")
    is_sparse = getattr(vectors, "layout", torch.strided) != torch.strided
    refuse(
        (not re.fullmatch(r"[<>]?(b?float|u?int|[fiu])\d+|bool", kind), f"{where} has values of type {kind}"),
        (
            is_sparse or isinstance(vectors, np.ma.MaskedArray),
            f"{where} is sparse or masked: write out all its numbers",
        ),
        (
            vectors.ndim != 2 or not vectors.shape[1],
            f"{where} has the shape {list(vectors.shape)}: vectors are one row a text, [N, d]",
        ),
    )
    return vectors


def find_first_rows(rows: np.ndarray) -> np.ndarray:
    """Find the first of equal rows of a matrix [n, d]: their numbers, in their order."""
    return np.sort(np.unique(rows, axis=0, return_index=True)[1])


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

    if isinstance(frame, pyarrow.Table):
        return frame
    return pyarrow.table(frame) if hasattr(frame, "columns") else None


def read_table(
    table: Any, where: str, key: str | None = None, leave_out: Sequence[str] = ()
) -> tuple[np.ndarray, list[str]]:
    """Read vectors from a table, and say which columns they are.

    They are a list column, else the numeric columns whose names differ in the number at their end alone, such as x0
    to x383, if most do. Else they are all but labels, and but whole numbers beside fractions: counts, years, ids.
    Where all numbers are whole, only those that differ in each row are left out. pandas' index is never one.
    """
    from pyarrow import types

    lists = {
        field.name: str(field.type)
        for field in table.schema
        if (types.is_list(field.type) or types.is_large_list(field.type) or types.is_fixed_size_list(field.type))
        and not types.is_string(field.type.value_type)  # tags
    }
    if key is not None or lists:
        return _read_list_column(table, _choose(lists, key, where), where)
    numeric = _list_numeric_columns(table, leave_out)
    family = _find_family(numeric)
    chosen = family or [name for name in numeric if name.lower() not in LABEL_NAMES]
    columns = [table[name].cast("float64") if types.is_decimal(table[name].type) else table[name] for name in chosen]
    vectors = np.stack([column.to_numpy() for column in columns], 1)
    if not family:  # without counts and ids, unless nothing else is left
        has_fractions = bool((np.isfinite(vectors) & (vectors != np.round(vectors))).any())
        kept = ~find_whole_numbers(vectors, each_once=not has_fractions)
        if kept.any():
            chosen, vectors = [name for name, is_kept in zip(chosen, kept, strict=True) if is_kept], vectors[:, kept]
    ends = f"{chosen[0]} to {chosen[-1]}" if family and len(family) > 1 else name_some(chosen, limit=40)
    left_out = [name for name in table.column_names if name not in chosen]
    others = name_some(sorted(left_out, key=lambda name: name not in numeric))  # numeric ones first
    note = f"The coordinates are the {len(chosen)} numeric columns {ends}{'; left out: ' * bool(others)}{others}."
    return vectors, [note]


def _read_list_column(table: Any, name: str, where: str) -> tuple[np.ndarray, list[str]]:
    from pyarrow import compute

    lengths = compute.list_value_length(table[name]).to_numpy()  # NaN: no list
    kept = lengths > 0
    refuse((len(set(lengths[kept])) > 1, f"{where}, column {name}: its lists differ in length"))
    values = compute.list_flatten(table[name]).to_numpy().reshape(kept.sum(), -1)
    if not kept.all():
        values, found = np.full((len(kept), values.shape[1]), np.nan), values
        values[kept] = found
    return values, [f"The vectors are the list column {name}."]


def _list_numeric_columns(table: Any, leave_out: Sequence[str]) -> list[str]:
    from pyarrow import types

    kinds = (types.is_floating, types.is_integer, types.is_decimal)
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])  # names, or a range that is no column
    return [
        field.name
        for field in table.schema
        if any(is_kind(field.type) for is_kind in kinds)
        and field.name not in (*leave_out, *index)
        and not field.name.startswith("__index_level_")
    ]


def _find_family(names: Sequence[str]) -> list[str]:
    """Return the names that differ in the number at their end alone, such as x0 to x383, by this number.

    Empty unless most names do.
    """
    numbered = {name: (found[1], int(found[2])) for name in names if (found := NUMBERED.fullmatch(name))}
    stem, count = max(Counter(stem for stem, _ in numbered.values()).items(), key=itemgetter(1), default=("", 0))
    family = sorted((number, name) for name, (own, number) in numbered.items() if own == stem)
    return [name for _, name in family] if 2 * count > len(names) and count > 1 else []


def find_whole_numbers(vectors: np.ndarray, each_once: bool) -> np.ndarray:
    """Find the columns of a matrix [N, d] that look like ids or counts, and not like coordinates: [d] bool.

    All their numbers but NaN are whole, and there are two or more; with ``each_once`` none occurs twice, as of ids.
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
