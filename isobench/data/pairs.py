"""Reading the sources and targets of translation and summarisation, with every check."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, first_line
from isobench.config.schema import Data, Generation, Task
from isobench.data import generated
from isobench.data.romanian import diacritics
from isobench.data.sources import hub_rows, lowest, parquet_path, source_name


@dataclass
class Pairs:
    """Texts to read and texts to write, [N] strings each."""

    sources: list[str]
    targets: list[str]

    def __len__(self) -> int:
        return len(self.sources)


def train_limit(task: Task) -> int | None:
    """How many training examples are taken at most: a smaller choice is part of a larger one."""
    return min((n for n in (task.reduced, task.train_samples) if n is not None), default=None)


def decisive(task: Task, split: str, limit: int | None) -> list[Any]:
    """What decides the texts that ``read`` gives, but for the data themselves: part of what is cached of them."""
    g = generation_of(task)
    return [split, limit, task.sample_seed, list(task.text), g.target, g.languages, g.diacritics]


def read(task: Task, data: Data, split: str, limit: int | None = None) -> Pairs:
    """One split of a generation task, checked; ``limit`` keeps a fixed choice of that many examples.

    Raises:
        UserError: missing columns, no rows, a text that is none, or a hub that can't be reached.
    """
    generation = generation_of(task)
    columns = (task.text[0], generation.target)
    source = source_name(task, data)
    if generation.grammar:
        where = f"the grammar {generation.grammar}"
        texts = list(generated.read(generation.grammar, split))
        texts = [chosen(column, limit, task.sample_seed) for column in texts]
    elif source == "parquet":
        path = parquet_path(task, data, split)
        texts, where = from_parquet(path, columns, limit, task.sample_seed), str(path)
    else:
        texts, where = from_hub(task, split, columns, limit), f"{task.hub}/{task.subset} {split}"
    if not texts[0]:
        raise UserError(f"{where} has no rows")
    for name, column in zip(columns, texts, strict=True):
        if not all(isinstance(text, str) for text in column):
            raise UserError(f"{where} has a row whose {name} is not text")
    for number, language in enumerate(generation.languages or []):
        if language.startswith("ro"):
            texts[number] = [diacritics(text, generation.diacritics) for text in texts[number]]
    return Pairs(*texts)


def generation_of(task: Task) -> Generation:
    """The task's ``generation``, which it must have."""
    assert task.generation is not None
    return task.generation


def chosen(column: Sequence[Any], limit: int | None, seed: int | None) -> list[Any]:
    """A fixed choice of ``limit`` entries, in their order."""
    if limit is None or limit >= len(column):
        return list(column)
    return [column[i] for i in lowest(len(column), limit, seed)]


def from_parquet(path: Path, columns: Sequence[str], limit: int | None, seed: int | None) -> list[list[Any]]:
    """The columns of a Parquet file; a dot in a name reaches into a struct."""
    import pyarrow
    import pyarrow.parquet

    try:
        schema = pyarrow.parquet.read_schema(path)
        for name in columns:
            check_column(schema, name, path)
        table = pyarrow.parquet.read_table(path, columns=list(dict.fromkeys(map(top, columns))))
        if limit is not None and limit < len(table):
            table = table.take(lowest(len(table), limit, seed))
        return [field_of(table[top(name)], name) for name in columns]
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} can't be read as Parquet: {first_line(error)}") from error


def top(name: str) -> str:
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


def field_of(column: Any, name: str) -> list[Any]:
    """A column's entries, or those of the field that a dotted name reaches."""
    import pyarrow.compute

    _, *path = name.split(".")
    return (pyarrow.compute.struct_field(column, path) if path else column).to_pylist()


def from_hub(task: Task, split: str, columns: Sequence[str], limit: int | None) -> list[list[Any]]:
    """The same from the hub."""
    rows = hub_rows(task, split, "scale=embedded")
    if limit is not None and limit < len(rows):
        rows = rows.select(lowest(len(rows), limit, task.sample_seed))
    table = rows.with_format("arrow")[:]
    for name in columns:
        check_column(table.schema, name, Path(f"{task.hub}/{task.subset}"))
    return [field_of(table[top(name)], name) for name in columns]
