"""Describe how translation and summarisation runs generated and scored texts, and how many texts were truncated."""

from collections.abc import Iterator, Sequence

from isobench.runs.grouping import read_run_names
from isobench.runs.record import RecordedData, RunRecord
from isobench.runs.row import Row


def describe_generation(rows: Sequence[Row]) -> list[str]:
    """Describe the search settings, the metrics' signatures and the truncation of the runs, each sentence once.

    A sentence that is not about all of these runs names the tasks and encoders that it is about. Runs that generate
    nothing, and parts that a record lacks, are passed over.
    """
    subjects: dict[str, dict[str, None]] = {}  # sentence -> the tasks and encoders that it is about
    all_subjects: set[str] = set()
    for row in rows:
        name = ", ".join(read_run_names(row.cfg)[:2])
        if row.record is not None and row.cfg.task.generation is not None:
            all_subjects.add(name)
            for sentence in [*describe_search(row.record), *describe_truncation(row.record.data)]:
                subjects.setdefault(sentence, {})[name] = None
    return [
        sentence if len(names) == len(all_subjects) else f"{'; '.join(names)}: {sentence}"
        for sentence, names in subjects.items()
    ]


def describe_search(record: RunRecord) -> Iterator[str]:
    """Write one sentence on the search and the metrics, if the record has either."""
    if record.generation is None:
        return
    parts = {"Search": record.generation.search, "Metrics": record.generation.signatures}
    words = [f"{title}: {', '.join(f'{k} {v}' for k, v in part.items())}." for title, part in parts.items() if part]
    if words:
        yield " ".join(words)


def describe_truncation(data: RecordedData) -> Iterator[str]:
    """Write one sentence on the sources and targets longer than the task or the model allows, if there are any."""
    parts = []
    for split, counts in data.truncated.items():
        total = data.examples.get(split)
        limits = (data.limits.sources, data.limits.targets) if data.limits else (None, None)
        for side, number, limit in zip(("sources", "targets"), (counts.sources, counts.targets), limits, strict=True):
            if number > 0:
                share = f"{number:,} of {total:,}" if total is not None else f"{number:,}"
                tokens = f"{limit:,} tokens" if limit is not None else "the model allows"
                parts.append(f"{share} {side} of {split} are longer than {tokens}")
    if parts:
        yield f"Truncated: {'; '.join(parts)}."
