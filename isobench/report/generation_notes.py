"""Describe how translation and summarisation runs generated and scored texts, and how many texts were truncated."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from isobench.runs.row import Row

SIDES = ("sources", "targets")


def describe_generation(rows: Sequence[Row]) -> list[str]:
    """Describe the search settings, the metrics' signatures and the truncation of the runs, each sentence once.

    A sentence that is not about all of these runs names the tasks and encoders that it is about. Runs that generate
    nothing, and parts of a record that are missing or damaged, are passed over.
    """
    subjects: dict[str, dict[str, None]] = {}  # sentence -> the tasks and encoders that it is about
    all_subjects: set[str] = set()
    for row in rows:
        name = f"{row.cfg.task.name}, {row.cfg.encoder.name}"
        if row.record is not None and row.cfg.task.generation is not None:
            all_subjects.add(name)
            for sentence in [*describe_search(row.record), *describe_truncation(row)]:
                subjects.setdefault(sentence, {})[name] = None
    return [
        sentence if len(names) == len(all_subjects) else f"{'; '.join(names)}: {sentence}"
        for sentence, names in subjects.items()
    ]


def describe_search(record: Mapping[str, Any]) -> Iterator[str]:
    """Write one sentence on the search and the metrics, if the record has either."""
    generation = as_mapping(record.get("generation"))
    parts = {"Search": as_mapping(generation.get("search")), "Metrics": as_mapping(generation.get("signatures"))}
    words = [f"{title}: {', '.join(f'{k} {v}' for k, v in part.items())}." for title, part in parts.items() if part]
    if words:
        yield " ".join(words)


def describe_truncation(row: Row) -> Iterator[str]:
    """Write one sentence on the sources and targets longer than the task or the model allows, if there are any."""
    data = as_mapping(row.record and row.record.get("data"))
    limits = as_mapping(data.get("limits"))
    parts = []
    for split, counts in as_mapping(data.get("truncated")).items():
        total = as_mapping(data.get("examples")).get(split)
        for side in SIDES:
            number = as_mapping(counts).get(side)
            if isinstance(number, int) and number > 0:
                share = f"{number:,} of {total:,}" if isinstance(total, int) else f"{number:,}"
                limit = limits.get(side)
                tokens = f"{limit:,} tokens" if isinstance(limit, int) else "the model allows"
                parts.append(f"{share} {side} of {split} are longer than {tokens}")
    if parts:
        yield f"Truncated: {'; '.join(parts)}."


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping; an empty one for a missing or damaged part of a record."""
    return value if isinstance(value, Mapping) else {}
