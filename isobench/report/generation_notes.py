"""How hypotheses of translation and summarisation runs were searched and scored, and which texts were cut."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from isobench.runs.row import Row

SIDES = ("sources", "targets")


def describe_generation(rows: Sequence[Row]) -> list[str]:
    """Search settings, metrics' signatures and truncation of the runs, each sentence once.

    Where the runs are of several tasks or encoders a sentence names those that it is of. Nothing for runs without
    generation, nor for parts of a record that are missing or are not what they should be.
    """
    said: dict[str, dict[str, None]] = {}  # sentence -> the tasks and encoders that it is of
    of: set[str] = set()
    for row in rows:
        name = f"{row.cfg.task.name}, {row.cfg.encoder.name}"
        if row.record is not None and row.cfg.task.generation is not None:
            of.add(name)
            for sentence in [*describe_search(row.record), *describe_truncation(row)]:
                said.setdefault(sentence, {})[name] = None
    whole = {sentence for sentence, names in said.items() if len(names) == len(of)}
    return [sentence if sentence in whole else f"{'; '.join(names)}: {sentence}" for sentence, names in said.items()]


def describe_search(record: Mapping[str, Any]) -> Iterator[str]:
    """One sentence on the search and the metrics, if the record has either."""
    generation = as_mapping(record.get("generation"))
    parts = {"Search": as_mapping(generation.get("search")), "Metrics": as_mapping(generation.get("signatures"))}
    words = [f"{title}: {', '.join(f'{k} {v}' for k, v in part.items())}." for title, part in parts.items() if part]
    if words:
        yield " ".join(words)


def describe_truncation(row: Row) -> Iterator[str]:
    """One sentence on the sources and targets that are longer than the task or the model takes, if there are any."""
    data = as_mapping(row.record and row.record.get("data"))
    limits = as_mapping(data.get("limits"))
    found = []
    for split, counts in as_mapping(data.get("truncated")).items():
        total = as_mapping(data.get("examples")).get(split)
        for side in SIDES:
            number = as_mapping(counts).get(side)
            if isinstance(number, int) and number > 0:
                share = f"{number:,} of {total:,}" if isinstance(total, int) else f"{number:,}"
                limit = limits.get(side)
                tokens = f"{limit:,} tokens" if isinstance(limit, int) else "the model takes"
                found.append(f"{share} {side} of {split} are longer than {tokens}")
    if found:
        yield f"Cut: {'; '.join(found)}."


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one: a part that is not there, or is damaged."""
    return value if isinstance(value, Mapping) else {}
