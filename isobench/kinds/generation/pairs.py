"""Read the sources and targets of translation and summarisation, and check them."""

import unicodedata
from typing import Any

from isobench.config.schema import Data, Generation, Task
from isobench.data.sources import check_texts, find_data_source, find_parquet_file, load_hub_split, select_by_hash
from isobench.data.tables import read_columns, read_field, require_columns
from isobench.kinds.generation import grammars
from isobench.tasks.kind import Examples

CEDILLA_TO_COMMA = str.maketrans("\u015e\u015f\u0162\u0163", "\u0218\u0219\u021a\u021b")
LETTER_TO_PLAIN = str.maketrans("\u0102\u0103\u00c2\u00e2\u00ce\u00ee\u0218\u0219\u021a\u021b", "AaAaIiSsTt")


def list_cache_key_inputs(task: Task, split: str, limit: int | None) -> list[Any]:
    """Return the cache-key inputs for ``read_pairs``, without the data's fingerprint."""
    g = require_generation(task)
    return [split, limit, task.sample_seed, list(task.text), g.target, g.languages, g.diacritics]


def require_generation(task: Task) -> Generation:
    """Return ``task.generation`` of a task that is known to have it."""
    assert task.generation is not None
    return task.generation


def read_pairs(task: Task, data: Data, split: str, limit: int | None = None) -> Examples:
    """Read sources as texts, and targets as labels, of one split of a task and check them.

    ``limit``: keep this many examples at most, chosen by ``select_by_hash`` with ``task.sample_seed``.
    """
    import pyarrow

    generation = require_generation(task)
    columns = (task.text[0], generation.target)
    if generation.grammar:
        made = grammars.generate_pairs(generation.grammar, split)
        rows, where = pyarrow.table(dict(zip(columns, made, strict=True))), f"the grammar {generation.grammar}"
    elif find_data_source(task, data) == "parquet":
        path = find_parquet_file(task, data, split)
        rows, where = read_columns(path, columns), str(path)
    else:
        rows, where = load_hub_split(task, split).with_format("arrow"), f"{task.hub}/{task.subset} {split}"
    if limit is not None and limit < len(rows):
        chosen = select_by_hash(len(rows), limit, task.sample_seed)
        rows = rows.take(chosen) if isinstance(rows, pyarrow.Table) else rows.select(chosen)
    table = rows[:]  # of the hub's, which is read now
    require_columns(table.schema, columns, where)
    texts = [check_texts(read_field(table, name), name, where) for name in columns]
    for side, language in enumerate(generation.languages or []):
        if language.startswith("ro"):
            texts[side] = [normalise_diacritics(text, generation.diacritics) for text in texts[side]]
    sources, targets = texts
    return Examples([sources], targets)


def normalise_diacritics(text: str, how: str) -> str:
    """Spell the Romanian diacritics of a text in one way; letters of other languages are kept.

    Romanian writes s and t with a comma below. Older texts have a cedilla instead, since Unicode had no such comma
    until 1999. A model trained on one spelling and evaluated on the other gets every word with these letters wrong.

    ``keep`` changes nothing. ``comma_below`` puts s and t with a comma for those with a cedilla. ``removed`` also
    puts plain letters for ă, â, î, ș and ț. The last two compose decomposed letters (Unicode's NFC) first.
    """
    if how == "keep":
        return text
    commas = unicodedata.normalize("NFC", text).translate(CEDILLA_TO_COMMA)
    return commas.translate(LETTER_TO_PLAIN) if how == "removed" else commas
