"""Where a task's examples come from, their fingerprint, and reading them with every check.

Three sources, never mixed and never swapped silently: the embedded sentences, Parquet files under
``data.root``, the hub. This module stays light: it is used to key runs before torch is imported.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isobench.common.errors import UserError, extract_first_line, suggest_nearest
from isobench.common.files import sha256_file
from isobench.config.schema import Data, Task
from isobench.data import generated_pairs, hub, movie_reviews


@dataclass
class Examples:
    """Texts (one or two columns, each N strings), labels [N] (int64 classes or float32 scores)."""

    texts: list[list[str]]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def find_data_source(task: Task, data: Data) -> str:
    """``embedded``, ``parquet`` or ``hub``."""
    if task.embedded:
        return "embedded"
    return "parquet" if data.root else "hub"


def fingerprint_data(task: Task, data: Data) -> dict[str, str]:
    """What identifies the bytes of every split a run uses.

    Raises:
        UserError: a file or folder that is not there.
    """
    source, splits = find_data_source(task, data), (task.train_split, *task.dev_splits)
    if task.generation and task.generation.grammar:
        for split in splits:
            generated_pairs.check_grammar_and_split(task.generation.grammar, split)
        return {"generated": f"{task.generation.grammar}, version {generated_pairs.VERSION}"}
    if source == "embedded":
        for split in splits:
            if split not in movie_reviews.SPLIT_BOUNDS:
                raise UserError(
                    f"task={task.name} has no split {split}: {suggest_nearest(split, movie_reviews.SPLIT_BOUNDS)}"
                )
        if list(task.text) != ["sentence"]:
            raise UserError(f"task={task.name} has one column of text: task.text=[sentence]")
        movie_reviews.find_csv()
        return {"embedded": movie_reviews.SHA256}
    if source == "hub":
        return {"hub": f"{task.hub}/{task.subset}@{task.revision}"}
    return {split: sha256_file(find_parquet_file(task, data, split)) for split in splits}


def find_parquet_file(task: Task, data: Data, split: str) -> Path:
    """``<root>/glue/<task>/<split>.parquet``; a clear error with what is there when it is missing.

    In ``task.folder`` instead, where it is set. Of translation and summarisation also ``<split>_PART.parquet``, if
    there is one such file only.
    """
    root = Path(str(data.root)).expanduser()
    if not root.is_dir():
        raise UserError(f"data.root: the folder {root} does not exist")
    name = task.folder or f"glue/{task.subset or task.name}"
    folder = root / name
    if not folder.is_dir():
        found = [entry.name for entry in folder.parent.glob("*/")]
        hint = (
            suggest_nearest(folder.name, found) if found else f"it has no {name.rpartition('/')[0] or name}/ folders"
        )
        raise UserError(f"data.root has no folder {name}: {hint}")
    path = folder / f"{split}.parquet"
    parts = list(folder.glob(f"{split}_*.parquet")) if task.generation else []
    if not path.is_file() and len(parts) == 1:
        return parts[0]
    if not path.is_file():
        others = ", ".join(sorted(file.stem for file in folder.glob("*.parquet"))) or "nothing"
        key = "task.train_split" if split == task.train_split else "task.dev_splits"
        raise UserError(f"{path} does not exist; the folder has: {others} (choose with {key}=...)")
    return path


def list_partial_splits(task: Task, data: Data) -> list[str]:
    """Files ``<split>_PART`` that a run reads for its splits, which may be parts of them; empty if none is known."""
    if find_data_source(task, data) != "parquet":
        return []
    try:
        stems = [find_parquet_file(task, data, split).stem for split in (task.train_split, *task.dev_splits)]
    except UserError:  # said when the run is to start
        return []
    return [stem for stem in stems if stem not in (task.train_split, *task.dev_splits)]


def read_examples(task: Task, data: Data, split: str, limit: int | None = None) -> Examples:
    """One split, checked: columns, row count, labels. ``limit`` keeps a fixed choice of that many examples.

    Raises:
        UserError: missing columns, no rows, labels out of range, or a hub that can't be reached.
    """
    source = find_data_source(task, data)
    if source == "embedded":
        sentences, targets = movie_reviews.read_sentences(split)
        columns: dict[str, Any] = {task.text[0]: sentences, "label": targets}
        where = "movie-reviews"
    elif source == "parquet":
        path = find_parquet_file(task, data, split)
        columns, where = _read_parquet(path, task), str(path)
    else:
        columns, where = _read_hub(task, split), f"{task.hub}/{task.subset} {split}"
    labels = _check_labels(task, columns["label"], where)
    texts = [[_check_text(text, name, where) for text in columns[name]] for name in task.text]
    return _select_examples(Examples(texts, labels), limit)


def _read_parquet(path: Path, task: Task) -> dict[str, Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        names = pyarrow.parquet.read_schema(path).names
        missing = [name for name in (*task.text, "label") if name not in names]
        if missing:
            raise UserError(f"{path} lacks the column {', '.join(missing)}; it has: {', '.join(names)}")
        table = pyarrow.parquet.read_table(path, columns=[*task.text, "label"])
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} can't be read as Parquet: {extract_first_line(error)}") from error
    return {name: table[name].to_pylist() for name in table.column_names}


def _read_hub(task: Task, split: str) -> dict[str, Any]:
    rows = load_hub_split(task, split, "scale=embedded task=rotten_tomatoes")
    return {name: rows[name][:] for name in (*task.text, "label")}


def load_hub_split(task: Task, split: str, instead: str) -> Any:
    """One split of the hub's data set; ``instead`` is what an error names to use where there is no hub.

    Raises:
        UserError: the hub can't be reached, or does not give it.
    """
    there = hub.is_reachable()
    import datasets

    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(task.hub, task.subset, revision=task.revision, split=split)
    except Exception as error:  # the client raises many kinds; all mean the same to the user
        if there:
            raise UserError(
                f"the hub did not give {task.hub}/{task.subset} {split}: {extract_first_line(error)}"
            ) from error
        raise UserError(
            f"task={task.name}: the hub can't be reached and {task.hub}/{task.subset} is not in its cache; set "
            f"data.root=FOLDER to Parquet files, or use {instead}"
        ) from error


def _check_labels(task: Task, labels: Any, where: str) -> np.ndarray:
    if len(labels) == 0:
        raise UserError(f"{where} has no rows")
    try:
        values = np.asarray(labels, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} has labels that are not numbers") from error
    if task.labels is None:
        low, high = task.label_range or (-np.inf, np.inf)
    else:
        low, high = 0, len(task.labels) - 1
    outside = ~((values >= low) & (values <= high))  # NaN counts as outside
    if outside.any():
        raise UserError(
            f"{where} has {outside.sum()} labels outside [{low:g}, {high:g}] (the first: {values[outside][0]:g}); "
            "is it an unlabelled split?"
        )
    if task.labels is not None and np.any(values != np.round(values)):
        raise UserError(f"{where} has labels that are not whole numbers; task={task.name} has classes")
    if task.as_classes is not None:
        return _round_to_classes(task, values)
    return values.astype(np.float32) if task.labels is None else values.astype(np.int64)


def _round_to_classes(task: Task, values: np.ndarray) -> np.ndarray:
    """A regression read as classes: scores rounded half to even onto ``as_classes`` equal steps."""
    if task.label_range is None:
        raise UserError(f"task.as_classes is for a regression such as stsb; task={task.name} has classes already")
    low, high = task.label_range
    return np.rint((values - low) / (high - low) * (int(task.as_classes or 0) - 1)).astype(np.int64)


def _check_text(text: object, name: str, where: str) -> str:
    if not isinstance(text, str):
        raise UserError(f"{where} has a row whose {name} is not text")
    return text


def _select_examples(examples: Examples, limit: int | None) -> Examples:
    """The ``limit`` examples whose index hashes lowest: the same ones on every machine, for every run's seed."""
    if limit is None or limit >= len(examples):
        return examples
    order = select_by_hash(len(examples), limit)
    texts = [[column[i] for i in order] for column in examples.texts]
    return Examples(texts, examples.labels[order])


def select_by_hash(count: int, limit: int, seed: int | None = None) -> list[int]:
    """The ``limit`` of ``count`` indices that hash lowest, ascending; with a seed, by other hashes."""
    salt = "" if seed is None else f"{seed}:"
    return sorted(sorted(range(count), key=lambda i: hashlib.sha256(f"{salt}{i}".encode()).digest())[:limit])
