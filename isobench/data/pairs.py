"""Reading the sources and targets of translation and summarisation, with every check."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, extract_first_line
from isobench.config.schema import Data, Generation, Task
from isobench.data import generated_pairs
from isobench.data.romanian import normalise_diacritics
from isobench.data.sources import find_data_source, find_parquet_file, load_hub_split, select_by_hash


@dataclass
class TextPairs:
    """Texts to read and texts to write, [N] strings each."""

    sources: list[str]
    targets: list[str]

    def __len__(self) -> int:
        return len(self.sources)


def resolve_train_limit(task: Task) -> int | None:
    """How many training examples are taken at most: a smaller choice is part of a larger one."""
    return min((n for n in (task.reduced, task.train_samples) if n is not None), default=None)


def list_cache_key_inputs(task: Task, split: str, limit: int | None) -> list[Any]:
    """What decides the texts that ``read`` gives, but for the data themselves: part of what is cached of them."""
    g = require_generation(task)
    return [split, limit, task.sample_seed, list(task.text), g.target, g.languages, g.diacritics]


def read_pairs(task: Task, data: Data, split: str, limit: int | None = None) -> TextPairs:
    """One split of a generation task, checked; ``limit`` keeps a fixed choice of that many examples.

    Raises:
        UserError: missing columns, no rows, a text that is none, or a hub that can't be reached.
    """
    generation = require_generation(task)
    columns = (task.text[0], generation.target)
    source = find_data_source(task, data)
    if generation.grammar:
        where = f"the grammar {generation.grammar}"
        texts = list(generated_pairs.generate_pairs(generation.grammar, split))
        texts = [select_subset(column, limit, task.sample_seed) for column in texts]
    elif source == "parquet":
        path = find_parquet_file(task, data, split)
        texts, where = read_parquet_pairs(path, columns, limit, task.sample_seed), str(path)
    else:
        texts, where = read_hub_pairs(task, split, columns, limit), f"{task.hub}/{task.subset} {split}"
    if not texts[0]:
        raise UserError(f"{where} has no rows")
    for name, column in zip(columns, texts, strict=True):
        if not all(isinstance(text, str) for text in column):
            raise UserError(f"{where} has a row whose {name} is not text")
    for number, language in enumerate(generation.languages or []):
        if language.startswith("ro"):
            texts[number] = [normalise_diacritics(text, generation.diacritics) for text in texts[number]]
    return TextPairs(*texts)


def require_generation(task: Task) -> Generation:
    """The task's ``generation``, which it must have."""
    assert task.generation is not None
    return task.generation


def select_subset(column: Sequence[Any], limit: int | None, seed: int | None) -> list[Any]:
    """A fixed choice of ``limit`` entries, in their order."""
    if limit is None or limit >= len(column):
        return list(column)
    return [column[i] for i in select_by_hash(len(column), limit, seed)]


def read_parquet_pairs(path: Path, columns: Sequence[str], limit: int | None, seed: int | None) -> list[list[Any]]:
    """The columns of a Parquet file; a dot in a name reaches into a struct."""
    import pyarrow
    import pyarrow.parquet

    try:
        schema = pyarrow.parquet.read_schema(path)
        for name in columns:
            check_column(schema, name, path)
        table = pyarrow.parquet.read_table(path, columns=list(dict.fromkeys(map(parse_top_column, columns))))
        if limit is not None and limit < len(table):
            table = table.take(select_by_hash(len(table), limit, seed))
        return [read_field(table[parse_top_column(name)], name) for name in columns]
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} can't be read as Parquet: {extract_first_line(error)}") from error


def parse_top_column(name: str) -> str:
    """The column that a dotted name begins with."""
    return name.partition(".")[0]


def check_column(schema: Any, name: str, path: Path) -> None:
    """Raise UserError, with what is there, for a column that a file lacks."""
    from pyarrow.types import is_struct

    there = [
        [f"{field.name}.{part.name}" for part in field.type.fields] if is_struct(field.type) else [field.name]
        for field in schema
    ]
    names = list(itertools.chain.from_iterable(there))
    if name not in names:
        raise UserError(f"{path} lacks the column {name}; it has: {', '.join(names)}")


def read_field(column: Any, name: str) -> list[Any]:
    """A column's entries, or those of the field that a dotted name reaches."""
    import pyarrow.compute

    _, *path = name.split(".")
    return (pyarrow.compute.struct_field(column, path) if path else column).to_pylist()


def read_hub_pairs(task: Task, split: str, columns: Sequence[str], limit: int | None) -> list[list[Any]]:
    """The same from the hub."""
    rows = load_hub_split(task, split, "scale=embedded")
    if limit is not None and limit < len(rows):
        rows = rows.select(select_by_hash(len(rows), limit, task.sample_seed))
    table = rows.with_format("arrow")[:]
    for name in columns:
        check_column(table.schema, name, Path(f"{task.hub}/{task.subset}"))
    return [read_field(table[parse_top_column(name)], name) for name in columns]
