"""Write numbers as sentences and tables do, and say in words how a set of runs was trained and reported."""

import math
from collections.abc import Iterator, Sequence

from isobench.common.terminal import format_count
from isobench.data.sources import find_own_file
from isobench.runs.grouping import read_run_names
from isobench.runs.record import RecordedData, RunRecord
from isobench.runs.run import Run

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def format_points(difference: float) -> str:
    """Write a difference with its sign and two decimals; zero has no sign."""
    text = f"{difference:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def format_interval(value: float, low: float, high: float) -> str:
    """Write a difference, followed by its interval in brackets if it has one."""
    return format_points(value) + ("" if math.isnan(low) else f" [{format_points(low)}, {format_points(high)}]")


def describe_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def format_columns(columns: Sequence[str]) -> str:
    return ", ".join(columns) if len(columns) <= 3 else f"{len(columns)} tasks"


def format_p_value(p: float | None) -> str:
    """Write a p-value as papers print it, without the zero before the point; a dash for none."""
    if p is None or math.isnan(p):
        return DASH
    return "< .001" if p < 0.001 else "1" if p >= 0.9995 else f"{p:.3f}".removeprefix("0")


def format_signed(value: float | None) -> str:
    """Write a difference as `format_points` does, with a minus sign; a dash if there is no finite number."""
    return DASH if value is None or not math.isfinite(value) else format_points(value).replace("-", MINUS)


def format_seconds(value: float) -> str:
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} s"


def format_number(value: float | None, form: str = ".4g") -> str:
    """Write a number, with at most four digits unless ``form`` says otherwise; a dash for none."""
    return DASH if value is None or math.isnan(value) else format(value, form).replace("-", MINUS)


def describe_epoch_rule(runs: Sequence[Run]) -> str:
    """Say which epoch of a run is reported, and on which examples."""
    best = "best epoch"
    compared = [run.cfg.evaluation.every for run in runs if run.cfg.optimization.report == "best"]
    if any(every != 1 for every in compared):
        best = f"best of the evaluated epochs (evaluation.every={' or '.join(map(str, dict.fromkeys(compared)))})"
    rules = {"best": f"{best} on the dev set, the set it is reported on", "last": "last epoch, on the dev set"}
    if any(run.cfg.task.held_out is not None for run in runs):
        rules["best"] = f"{best} on examples held out of the training set, reported on the dev set"
    return " or ".join(rules[rule] for rule in dict.fromkeys(run.cfg.optimization.report for run in runs))


def list_training_settings(runs: Sequence[Run]) -> dict[str, str]:
    """List what the runs were trained with: name -> values in order of appearance, those that took effect.

    A run that has not ended knows them only as they were set: it counts where none has ended.
    """
    values: dict[str, dict[str, None]] = {}
    for run in [run for run in runs if run.record] or runs:
        task, o, data = run.cfg.task, run.cfg.optimization, run.record.data if run.record else None
        examples = data.examples if data else {}
        batch = min(o.batch_size, examples.get(task.train_split, o.batch_size))
        used = (data.limits.sources if data.limits else data.max_length) if data else None
        settings = {
            "lr": f"{o.lr:g}",
            "batch": f"{o.batch_tokens} tokens" if o.batch_tokens else str(batch),
            "epochs": str(o.epochs),
            "length": str(min(task.max_length, used or task.max_length)),
            "optimizer": (o.optimizer or {"name": "adamw"})["name"],
        }
        if run.cfg.data.files:
            names = {split: find_own_file(task, run.cfg.data, split).name for split in run.cfg.data.files}
            counts = {split: format_count(examples[split], "example") for split in names if split in examples}
            settings["files"] = ", ".join(f"{split} {names[split]} ({count})" for split, count in counts.items())
            settings["columns"] = ", ".join([*task.text, *([task.label] if task.label else [])])
        for name, value in settings.items():
            values.setdefault(name, {})[value] = None
    return {name: " or ".join(found) for name, found in values.items()}


def describe_generation(runs: Sequence[Run]) -> list[str]:
    """Describe the search settings, the metrics' signatures and the truncation of the runs, each sentence once.

    A sentence that is not about all of these runs names the tasks and encoders that it is about. Runs that generate
    nothing, and what a record lacks, are passed over.
    """
    subjects: dict[str, dict[str, None]] = {}  # sentence -> the tasks and encoders that it is about
    all_subjects: set[str] = set()
    for run in runs:
        name = ", ".join(read_run_names(run.cfg)[:2])
        if run.record is not None and (run.record.generation or run.record.data.truncated):
            all_subjects.add(name)
            for sentence in [*_describe_search(run.record), *_describe_truncation(run.record.data)]:
                subjects.setdefault(sentence, {})[name] = None
    return [
        sentence if len(names) == len(all_subjects) else f"{'; '.join(names)}: {sentence}"
        for sentence, names in subjects.items()
    ]


def _describe_search(record: RunRecord) -> Iterator[str]:
    if record.generation is None:
        return
    found = {"Search": record.generation.search, "Metrics": record.generation.signatures}
    sentences = []
    for title, settings in found.items():
        if settings:
            sentences.append(f"{title}: {', '.join(f'{name} {value}' for name, value in settings.items())}.")
    if sentences:
        yield " ".join(sentences)


def _describe_truncation(data: RecordedData) -> Iterator[str]:
    """Write one sentence on the sources and targets longer than the task or the model allows, if there are any."""
    phrases = []
    for split, counts in data.truncated.items():
        total = data.examples.get(split)
        limits = (data.limits.sources, data.limits.targets) if data.limits else (None, None)
        for side, count, limit in zip(("sources", "targets"), (counts.sources, counts.targets), limits, strict=True):
            if count > 0:
                share = f"{count:,} of {total:,}" if total is not None else f"{count:,}"
                tokens = f"{limit:,} tokens" if limit is not None else "the model allows"
                phrases.append(f"{share} {side} of {split} are longer than {tokens}")
    if phrases:
        yield f"Truncated: {'; '.join(phrases)}."
