"""How hypotheses of translation and summarisation runs were searched and scored, and which texts were cut."""

from collections.abc import Iterator, Sequence

from isobench.runs.record import RecordedData, RunRecord
from isobench.runs.row import Row


def describe_generation(rows: Sequence[Row]) -> list[str]:
    """Search settings, metrics' signatures and truncation of the runs, each sentence once.

    Where the runs are of several tasks or encoders a sentence names those that it is of. Nothing for runs without
    generation, nor for parts that a record lacks.
    """
    said: dict[str, dict[str, None]] = {}  # sentence -> the tasks and encoders that it is of
    of: set[str] = set()
    for row in rows:
        name = f"{row.cfg.task.name}, {row.cfg.encoder.name}"
        if row.record is not None and row.cfg.task.generation is not None:
            of.add(name)
            for sentence in [*describe_search(row.record), *describe_truncation(row.record.data)]:
                said.setdefault(sentence, {})[name] = None
    whole = {sentence for sentence, names in said.items() if len(names) == len(of)}
    return [sentence if sentence in whole else f"{'; '.join(names)}: {sentence}" for sentence, names in said.items()]


def describe_search(record: RunRecord) -> Iterator[str]:
    """One sentence on the search and the metrics, if the record has either."""
    if record.generation is None:
        return
    parts = {"Search": record.generation.search, "Metrics": record.generation.signatures}
    words = [f"{title}: {', '.join(f'{k} {v}' for k, v in part.items())}." for title, part in parts.items() if part]
    if words:
        yield " ".join(words)


def describe_truncation(data: RecordedData) -> Iterator[str]:
    """One sentence on the sources and targets that are longer than the task or the model takes, if there are any."""
    found = []
    for split, counts in data.truncated.items():
        total = data.examples.get(split)
        limits = (data.limits.sources, data.limits.targets) if data.limits else (None, None)
        for side, number, limit in zip(("sources", "targets"), (counts.sources, counts.targets), limits, strict=True):
            if number > 0:
                share = f"{number:,} of {total:,}" if total is not None else f"{number:,}"
                tokens = f"{limit:,} tokens" if limit is not None else "the model takes"
                found.append(f"{share} {side} of {split} are longer than {tokens}")
    if found:
        yield f"Cut: {'; '.join(found)}."
