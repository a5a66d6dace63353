"""Write numbers as sentences and tables do, and say in words how a set of runs was trained and reported."""

import math
from collections.abc import Iterator, Sequence

from isobench.common.terminal import format_count
from isobench.data.sources import find_own_file
from isobench.runs.grouping import read_run_names
from isobench.runs.record import RunRecord
from isobench.runs.run import Run

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def format_points(difference: float) -> str:
    """Write a difference with its sign and two decimals; zero has no sign."""
    text = f"{difference:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def format_interval(value: float, low: float, high: float) -> str:
    """Write a difference, followed by its interval in brackets if it has one."""
    return format_points(value) + ("" if math.isnan(low) else f" [{format_points(low)}, {format_points(high)}]")


def format_size(size: float) -> str:
    """Write a number above 0 with two digits, or all that it has before the point."""
    return f"{size:.0f}" if size >= 99.5 else f"{size:#.2g}".rstrip(".")


def describe_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def format_p_value(p: float) -> str:
    """Write a p-value as papers print it, without the zero before the point; a dash for none."""
    if math.isnan(p):
        return DASH
    return "< .001" if p < 0.001 else "1" if p >= 0.9995 else f"{p:.3f}".removeprefix("0")


def format_signed(value: float | None) -> str:
    """Write a difference as `format_points` does, with a minus sign; a dash if there is no finite number."""
    return DASH if value is None or not math.isfinite(value) else format_points(value).replace("-", MINUS)


def format_number(value: float | None, form: str = ".4g") -> str:
    """Write a number, with at most four digits unless ``form`` says otherwise; a dash for none."""
    return DASH if value is None or math.isnan(value) else format(value, form).replace("-", MINUS)


def describe_epoch_rule(runs: Sequence[Run]) -> str:
    """Say which epoch of a run is reported, and on which examples."""
    is_held_out = any(run.cfg.task.held_out is not None for run in runs)
    best = "examples held out of the training set, reported on the dev set"
    best = best if is_held_out else "the dev set, the set it is reported on"
    rules = {"best": f"best evaluated epoch on {best}", "last": "last epoch, on the dev set"}
    return " or ".join(rules[rule] for rule in dict.fromkeys(run.cfg.optimization.report for run in runs))


def list_training_settings(runs: Sequence[Run]) -> dict[str, str]:
    """List what the runs were trained with, name -> values; runs that have not ended count where none has."""
    values: dict[str, dict[str, None]] = {}
    for run in [run for run in runs if run.record] or runs:
        task, o, data = run.cfg.task, run.cfg.optimization, run.record.data if run.record else None
        examples = data.examples if data else {}
        used = (data.limits.sources if data.limits else data.max_length) if data else None
        batch = min(o.batch_size, examples.get(task.train_split, o.batch_size))
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


def describe_early_ends(runs: Sequence[Run]) -> list[str]:
    """Say how many runs early stopping ended, and after which epochs."""
    finished = [(run.record, run.cfg.optimization) for run in runs if run.record and run.record.status == "finished"]
    lasts = [(record.history[-1].epoch, o.epochs) for record, o in finished if record.history and o.patience]
    ended = sorted(last for last, epochs in lasts if last < epochs)
    if not ended:
        return []
    after = f"epoch {ended[0]}" if ended[0] == ended[-1] else f"epochs {ended[0]} to {ended[-1]}"
    counts = f"{len(ended):,} of {format_count(len(lasts), 'run')}"
    return [f"Early stopping ended {counts} after {after}; optimization.patience=null trains all epochs."]


def describe_generation(runs: Sequence[Run]) -> list[str]:
    """Describe the search settings, the metrics' signatures and the truncation of the runs, each sentence once.

    A sentence that is not about all of these runs names the tasks and encoders that it is about.
    """
    subjects: dict[str, dict[str, None]] = {}  # sentence -> the tasks and encoders that it is about
    for run in runs:
        for sentence in _list_generation(run.record) if run.record else ():
            subjects.setdefault(sentence, {})[", ".join(read_run_names(run.cfg)[:2])] = None
    count = len({name for names in subjects.values() for name in names})
    of_some = {sentence: f"{'; '.join(names)}: " for sentence, names in subjects.items() if len(names) < count}
    return [f"{of_some.get(sentence, '')}{sentence}" for sentence in subjects]


def _list_generation(record: RunRecord) -> Iterator[str]:
    """Yield a sentence on a run's search and metrics, and one on its truncated examples, if it has them."""
    data, generation = record.data, record.generation
    settings = {"Search": generation.search, "Metrics": generation.signatures} if generation else {}
    texts = {title: ", ".join(f"{name} {value}" for name, value in own.items()) for title, own in settings.items()}
    if any(texts.values()):
        yield " ".join(f"{title}: {text}." for title, text in texts.items() if text)
    cut = []
    for split, counts in data.truncated.items() if data.limits else ():
        for side, limit in vars(data.limits).items():
            if count := getattr(counts, side):
                share = f"{count:,} of {data.examples.get(split, 0):,} {side} of {split}"
                cut.append(f"{share} are longer than {limit:,} tokens")
    if cut:
        yield f"Truncated: {'; '.join(cut)}."
