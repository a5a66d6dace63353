"""Find, read and fingerprint the examples of a task.

They come from one of four sources: an installed package or generator (``embedded``), the user's own files
(``data.files``), Parquet files under ``data.root``, or the hub. No source ever replaces another silently. This module
imports nothing heavy, because runs are keyed before torch is imported.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from isobench.common.errors import UserError, refuse
from isobench.common.files import sha256_file
from isobench.common.terminal import format_count, print_note_once
from isobench.config.schema import Data, Task
from isobench.data import hub
from isobench.data.tables import (
    describe_format,
    describe_reading,
    read_columns,
    read_field,
    read_own_file,
    require_columns,
)
from isobench.tasks.kind import kind_of


def find_data_source(task: Task, data: Data) -> str:
    """Return where the task's examples come from: ``embedded``, ``files``, ``parquet`` or ``hub``."""
    if task.embedded:
        return "embedded"
    if data.files:
        return "files"
    return "parquet" if data.root else "hub"


def describe_source(task: Task, data: Data) -> str:
    """Say in a few words where the task's examples come from: ``data.root``, a package, own files or the hub."""
    places = {
        "embedded": "package",
        "files": "data.files",
        "parquet": data.root,
        "hub": f"{task.hub}@{str(task.revision)[:7]}",
    }
    return str(places[find_data_source(task, data)])


def fingerprint_data(task: Task, data: Data) -> dict[str, str]:
    """Identify the data of every split that a run uses, for its key: by hashes, versions or the hub's revision."""
    source, splits = find_data_source(task, data), task.read_splits
    if source == "embedded":
        return kind_of(task).fingerprint(task)
    if source == "files":
        seed = f" with seed {task.sample_seed}" * (task.sample_seed is not None)
        shares = {split: f"{share!r} of {task.train_split}{seed}" for split, share in list_shares(data).items()}
        files = {split: find_own_file(task, data, split) for split in splits}
        # What decides how a file's bytes are read is in it too: the format, and an encoding that is named.
        kinds = {split: describe_format(file, data.encoding) for split, file in files.items()}
        return {split: shares.get(split) or f"{kinds[split]} {sha256_file(file)}" for split, file in files.items()}
    if source == "hub":
        return {"hub": f"{task.hub}/{task.subset}@{task.revision}"}
    return {split: sha256_file(find_parquet_file(task, data, split)) for split in splits}


def require_unchanged(task: Task, data: Data, fingerprint: dict[str, str]) -> None:
    """Raise UserError if the data that were just read are no longer those of a fingerprint, which would be theirs."""
    if fingerprint_data(task, data) != fingerprint:
        raise UserError(f"task={task.name}: its data were changed while they were read: repeat the command")


def list_shares(data: Data) -> dict[str, float]:
    """Return the splits that take a share of the training file's rows, and these shares."""
    return {split: file for split, file in sorted((data.files or {}).items()) if isinstance(file, float)}


def find_own_file(task: Task, data: Data, split: str) -> Path:
    """Return the file of ``data.files`` that has a split's rows."""
    return Path((data.files or {})[task.train_split if split in list_shares(data) else split])


def describe_own_reading(task: Task, data: Data, split: str) -> str:
    """Say how the user's own file of a split is written, if it is no usual one of its format."""
    if find_data_source(task, data) != "files":
        return ""
    return describe_reading(read_own_file(find_own_file(task, data, split), data.encoding))


def choose_own_rows(task: Task, data: Data, split: str, rows: Sequence[Any]) -> list[int]:
    """Return the indices of a file's rows that are a split's; of a file that several share, equal rows go to one."""
    shares = list_shares(data)
    if not shares or split not in (*shares, task.train_split):
        return list(range(len(rows)))
    places = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    owners: dict[int, str] = {}
    total = 0.0
    for name, share in shares.items():
        total += share
        for place in select_by_hash(len(places), round(total * len(places)), task.sample_seed):
            owners.setdefault(place, name)  # the rows of the shares before are among those that are selected
    return [index for index, row in enumerate(rows) if owners.get(places[row], task.train_split) == split]


def find_parquet_file(task: Task, data: Data, split: str) -> Path:
    """Return the path of a split's file: ``<data.root>/<task.folder>/<split>.parquet``.

    Without ``task.folder`` the folder is ``glue/<task>``. Of a corpus a single ``<split>_PART.parquet`` is accepted
    too.
    """
    root = Path(str(data.root)).expanduser()
    folder = root / (task.folder or f"glue/{task.subset or task.name}")
    path = folder / f"{split}.parquet"
    parts = list(folder.glob(f"{split}_*.parquet")) if kind_of(task).is_corpus else []
    if not path.is_file() and len(parts) == 1:
        return parts[0]
    if not path.is_file():
        refuse((not root.is_dir(), f"data.root={root} is no folder: name one that holds {path.relative_to(root)}"))
        has = ", ".join(sorted(file.name for file in folder.glob("[!.]*"))) or "nothing"
        raise UserError(f"data.root: {path} does not exist; its folder has {has} (task.train_split=NAME chooses)")
    return path


def list_partial_splits(task: Task, data: Data) -> list[str]:
    """Return the names of files ``<split>_PART`` that a run reads instead of ``<split>``: they may be incomplete."""
    if find_data_source(task, data) != "parquet":
        return []
    try:
        stems = [find_parquet_file(task, data, split).stem for split in (task.train_split, *task.dev_splits)]
    except UserError:  # a missing file is reported when the run starts
        return []
    return [stem for stem in stems if stem not in (task.train_split, *task.dev_splits)]


def read_texts(task: Task, data: Data, split: str) -> list[str]:
    """Read the texts of a split in their order; blank texts are left out."""
    (column,) = task.text
    source = find_data_source(task, data)
    if source == "files":
        path = find_own_file(task, data, split)
        table, where = read_own_file(path, data.encoding), str(path)
        require_columns(table.schema, [column], where)
        texts = table[column].to_pylist()
        texts = [texts[index] for index in choose_own_rows(task, data, split, texts)]
    elif source == "parquet":
        path = find_parquet_file(task, data, split)
        texts, where = read_field(read_columns(path, [column]), column), str(path)
    else:
        texts, where = load_hub_split(task, split)[column][:], f"{task.hub}/{task.subset} {split}"
    return [text for text in check_texts(texts, column, where, blank="skipped") if text.strip()]


def load_hub_split(task: Task, split: str) -> Any:
    """Load one split of the task's data set on the hub."""
    return hub.load_hub_dataset(
        str(task.hub), task.subset, task.revision, split, setting=f"task={task.name}", advice=advise_without_hub(task)
    )


def advise_without_hub(task: Task) -> str:
    """Say what to set if the task's data set on the hub can't be had."""
    instead, _ = kind_of(task).packaged
    other = f"use scale=embedded task={instead}" if instead else "name files of your own (data.files)"
    return f"set data.root=FOLDER to Parquet files, or {other}"


def check_texts(
    texts: list[Any], column: str, where: str, blank: Literal["refused", "named", "skipped"] = "named"
) -> list[str]:
    """Return the texts of a column; UserError if one is not a string, or there is none.

    ``blank``: what becomes of texts without a letter; those that the caller skips are not spoken of.
    """
    for row, text in enumerate(texts, 1):
        if not isinstance(text, str) or (blank == "refused" and not text.strip()):
            raise UserError(f"{where} has no text in the column {column}, row {row}: {str(text)[:60]!r}")
    count = sum(not text.strip() for text in texts)
    refuse((count == len(texts), f"{where} has no row with a text in the column {column}"))
    if count and blank == "named":
        print_note_once(
            f"{where}: {format_count(count, 'row')} of {len(texts)} without a text in the column {column}"
        )
    return texts


def select_by_hash(count: int, limit: int, seed: int | None = None) -> list[int]:
    """Choose ``limit`` of ``count`` indices: those with the lowest sha256, in ascending order.

    The choice is the same on every machine, and a smaller one is part of a larger one. ``seed`` gives another choice.
    """
    salt = "" if seed is None else f"{seed}:"
    return sorted(sorted(range(count), key=lambda i: hashlib.sha256(f"{salt}{i}".encode()).digest())[:limit])
