"""Say in words what applies to a set of runs: data, training, reported epoch, generation, warnings."""

from collections.abc import Iterator, Sequence

from isobench.runs.grouping import read_run_names, read_scale_differences
from isobench.runs.record import RecordedData, RunRecord
from isobench.runs.run import Run


def describe_epoch_rule(rows: Sequence[Run]) -> str:
    """Say which epoch of a run is reported, and on which examples."""
    best = "best epoch"
    compared = [row.cfg.evaluation.every for row in rows if row.cfg.optimization.report == "best"]
    if any(every != 1 for every in compared):
        best = f"best of the evaluated epochs (evaluation.every={' or '.join(map(str, dict.fromkeys(compared)))})"
    words = {"best": f"{best} on the dev set, the set it is reported on", "last": "last epoch, on the dev set"}
    if any(row.cfg.task.held_out is not None for row in rows):
        words["best"] = f"{best} on examples held out of the training set, reported on the dev set"
    return " or ".join(words[rule] for rule in dict.fromkeys(row.cfg.optimization.report for row in rows))


def list_warnings(rows: Sequence[Run]) -> list[str]:
    """List the warnings that the runs recorded, each once."""
    return list(dict.fromkeys(warning for row in rows if row.record for warning in row.record.warnings))


def describe_scale(rows: Sequence[Run]) -> list[str]:
    """Say how data and encoder differ from the paper's; without a paper, which part of the data was used, if any."""
    differs = "; ".join(dict.fromkeys(phrase for row in rows for phrase in read_scale_differences(row)))
    if not rows[0].cfg.experiment.paper:
        return [f"Data: {differs}."] if differs else []
    comparison = f"NOT the paper's setting: {differs}." if differs else "Data and encoder are the paper's."
    return [f"scale={rows[0].cfg.scale}. {comparison}"]


def describe_training(rows: Sequence[Run]) -> str:
    """Say what the runs were trained with: the settings that papers state, with the values that took effect."""
    settings = [row.cfg.optimization for row in rows]
    values = {
        "lr": [f"{o.lr:g}" for o in settings],
        "batch": [_describe_batch(row) for row in rows],
        "epochs": [str(o.epochs) for o in settings],
        "length": [_describe_length(row) for row in rows],
    }
    words = [f"{name} {' or '.join(dict.fromkeys(own))}" for name, own in values.items()]
    return f"Trained with {', '.join(words)}."


def _describe_batch(row: Run) -> str:
    """Say how large a run's batches are; a batch can't have more examples than the training set has."""
    o = row.cfg.optimization
    if o.batch_tokens:
        return f"{o.batch_tokens} tokens"
    examples = row.record.data.examples.get(row.cfg.task.train_split) if row.record else None
    if examples is not None and examples < o.batch_size:
        return f"{examples} (the whole training set, less than optimization.batch_size={o.batch_size})"
    return str(o.batch_size)


def _describe_length(row: Run) -> str:
    """Say how many tokens of a text a run reads at most: ``task.max_length``, or what its encoder takes if less."""
    limit, data = row.cfg.task.max_length, row.record.data if row.record else None
    used = (data.limits.sources if data.limits else data.max_length) if data else None
    if used is None or used >= limit:
        return str(limit)
    return f"{used} (task.max_length={limit} is more than the encoder takes)"


def describe_generation(rows: Sequence[Run]) -> list[str]:
    """Describe the search settings, the metrics' signatures and the truncation of the runs, each sentence once.

    A sentence that is not about all of these runs names the tasks and encoders that it is about. Runs that generate
    nothing, and what a record lacks, are passed over.
    """
    subjects: dict[str, dict[str, None]] = {}  # sentence -> the tasks and encoders that it is about
    all_subjects: set[str] = set()
    for row in rows:
        name = ", ".join(read_run_names(row.cfg)[:2])
        if row.record is not None and row.cfg.task.generation is not None:
            all_subjects.add(name)
            for sentence in [*_describe_search(row.record), *_describe_truncation(row.record.data)]:
                subjects.setdefault(sentence, {})[name] = None
    return [
        sentence if len(names) == len(all_subjects) else f"{'; '.join(names)}: {sentence}"
        for sentence, names in subjects.items()
    ]


def _describe_search(record: RunRecord) -> Iterator[str]:
    """Write one sentence on the search and the metrics, if the record has either."""
    if record.generation is None:
        return
    found = {"Search": record.generation.search, "Metrics": record.generation.signatures}
    words = [f"{title}: {', '.join(f'{k} {v}' for k, v in own.items())}." for title, own in found.items() if own]
    if words:
        yield " ".join(words)


def _describe_truncation(data: RecordedData) -> Iterator[str]:
    """Write one sentence on the sources and targets longer than the task or the model allows, if there are any."""
    phrases = []
    for split, counts in data.truncated.items():
        total = data.examples.get(split)
        limits = (data.limits.sources, data.limits.targets) if data.limits else (None, None)
        for side, number, limit in zip(("sources", "targets"), (counts.sources, counts.targets), limits, strict=True):
            if number > 0:
                share = f"{number:,} of {total:,}" if total is not None else f"{number:,}"
                tokens = f"{limit:,} tokens" if limit is not None else "the model allows"
                phrases.append(f"{share} {side} of {split} are longer than {tokens}")
    if phrases:
        yield f"Truncated: {'; '.join(phrases)}."
