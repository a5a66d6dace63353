"""Check runs by what a folder holds of them: record, config, key, predictions and scores agree with each other.

Predictions have the columns that isobench.runs.folder writes: ``split`` and ``index``, then those of the task's kind.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import multimode
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute as pc

from isobench.common.errors import extract_first_line
from isobench.common.files import sha256_json
from isobench.config.bounds import check_value
from isobench.config.schema import HELD_OUT, LAST_EPOCH, Config, Task, config_from_plain
from isobench.data.scale import drop_paper_remarks, find_scale_differences
from isobench.kinds.base import is_known, kind_of, load_kind, name_kind
from isobench.kinds.predictions import PredictedSplit
from isobench.metrics.accumulator import is_possible
from isobench.metrics.task import is_constant
from isobench.runs.folder import CLOCK_TOLERANCE, RunFolder, is_intact, run_folder_name
from isobench.runs.identity import STREAMS, compute_key, resolve_seeds, select_decisive
from isobench.runs.record import Epoch, RunRecord, parse_record
from isobench.runs.trust import find_other_classes
from isobench.verification.folder import DIFFERS, FAILS, UNCHECKED, Outcomes

ROUNDING = 1e-9  # by which other versions and processors may round a score, a fraction
KEY_COLUMNS = {"split": pyarrow.string(), "index": pyarrow.int64()}
TYPES = {"number": pyarrow.float64(), "numbers": pyarrow.list_(pyarrow.float64()), "text": pyarrow.string()}


@dataclass
class CheckedRun:
    """One run's folder and what is left of it once it was checked."""

    name: str  # of the folder: the first digits of the run's key
    record: RunRecord | None = None  # None if it has not ended, or its record can't be used
    cfg: Config | None = None  # None if it can't be read or is not valid
    labels: dict[str, str] = field(default_factory=dict)  # split -> hash of the labels in its predictions
    lacks_predictions: bool = False  # its record names the file, and it is not there
    traces: dict[str, str] = field(default_factory=dict)  # what no two seeds give alike -> its hash


def check_run(folder: RunFolder, outcomes: Outcomes, trust: bool = False) -> CheckedRun:
    """Check a run's record, config, key and scores; nothing that its files name is opened.

    With ``trust``, a kind of task from outside is imported, because only its code can compute the scores again.
    """
    run = CheckedRun(name := folder.path.name)
    try:
        text = folder.read_text()
        if text is None:
            outcomes.note(name, "record", UNCHECKED, "it has not ended")
            return run
        record = parse_record(text, folder.result_file)
        run.cfg = _read_config(name, record, outcomes)
        if run.cfg is not None:
            if trust:
                load_kind(run.cfg.task)
            _check_contents(folder, run.cfg, record, outcomes)
            run.record = record
            _check_predictions(folder, run, outcomes)
    except Exception as error:  # a stranger's record may be wrong in any way
        outcomes.note(name, "record", FAILS, extract_first_line(error))
        run.record = None
    return run


def _read_config(name: str, record: RunRecord, outcomes: Outcomes) -> Config | None:
    try:
        cfg = config_from_plain(record.config)
        check_value("", cfg, Config)
        return cfg
    except Exception as error:  # as above
        outcomes.note(name, "config", FAILS, f"its config can't be used: {extract_first_line(error)}")
        return None


def _check_contents(folder: RunFolder, cfg: Config, record: RunRecord, outcomes: Outcomes) -> None:
    name = folder.path.name
    outcomes.judge(name, "config", list(find_other_classes(cfg)))
    problems = [] if record.key.startswith(folder.key) else [f"its record is that of {run_folder_name(record.key)}"]
    if record.seeds != resolve_seeds(cfg):
        problems.append("its seeds are not those of its config")
    if record.scale.name != cfg.scale:
        problems.append(f"its scale {record.scale.name!r} is not that of its config")
    problems += [*check_schedule(cfg, record), *_check_scale(cfg, record), *_check_counts(cfg, record)]
    problems += [problem for epoch in record.history for problem in _check_epoch(cfg, epoch)]
    problems += _find_impossible(record.isotropy_before, "before the first step")
    outcomes.judge(name, "record", problems)
    key = compute_key(cfg, record.data.fingerprint, record.encoder.fingerprint)
    is_same = key == record.key
    outcomes.judge(name, "key", [] if is_same else [f"its settings and fingerprints give {run_folder_name(key)}"])


def check_schedule(cfg: Config, record: RunRecord) -> list[str]:
    """Return what is wrong if the epochs of the history are not those at which the config evaluates."""
    optimization, every = cfg.optimization, cfg.evaluation.every
    interval = optimization.epochs if every == LAST_EPOCH else int(every)
    planned = -(-optimization.epochs // interval)  # not a list: a stranger's config may name any number of epochs
    epochs = [epoch.epoch for epoch in record.history]
    if epochs != [
        min(evaluation * interval, optimization.epochs) for evaluation in range(1, min(len(epochs), planned) + 1)
    ]:
        return ["its history has not the epochs that its config evaluates"]
    if record.status == "finished" and len(epochs) < planned:
        problem = f"it is finished, and its history ends after {len(epochs)} of {planned} evaluations"
        if optimization.patience is None or not epochs:
            return [problem]
        # Early stopping sees them in float32, where two that hardly differ are equal.
        selections = np.array([epoch.selection for epoch in record.history], np.float32)
        waited = len(epochs) - 1 - int(selections.argmax())
        return [problem] if waited != -(-optimization.patience // interval) else []
    return []


def _check_scale(cfg: Config, record: RunRecord) -> Iterator[str]:
    """Yield what a record leaves unsaid of how its data are less than the whole; what it says of a paper is not read.

    What depends on the names of data files is not checked, because no path of a config is followed.
    """
    found = drop_paper_remarks(find_scale_differences(cfg, ()))
    if unsaid := [phrase for phrase in found if phrase not in record.scale.differs]:
        yield f"it does not say: {'; '.join(unsaid)}"


def _check_counts(cfg: Config, record: RunRecord) -> Iterator[str]:
    """Yield which numbers of examples, steps, tokens and seconds contradict the config or each other."""
    task, optimization, data, cost = cfg.task, cfg.optimization, record.data, record.cost
    if cost.training_seconds + cost.evaluation_seconds > cost.seconds + 0.01:  # they are rounded
        yield "its seconds of training and evaluation are more than those of the whole run"
    if record.started and record.ended and record.ended - record.started < cost.seconds - CLOCK_TOLERANCE:
        yield "it took more seconds than there are from its start to its end"
    if not record.history:
        return
    trained = data.examples.get(task.train_split, 0)
    for split, limit in task.limits.items():
        held_out = data.examples.get(HELD_OUT, 0) if split == task.train_split else 0
        count = data.examples.get(split, 0) + held_out
        if count < 1 or (limit is not None and count > limit):
            yield f"it has {count} examples of {split}, and its config asks for {limit or 'some'}"
    if (data.max_length or 0) > task.max_length or (data.limits and data.limits.sources > task.max_length):
        yield f"it kept longer texts than the {task.max_length} tokens of its config"
    if optimization.batch_tokens is None:
        if optimization.drop_last:
            trained -= trained % optimization.batch_size
        batches = -(-trained // optimization.batch_size)
        steps = -(-batches // optimization.accumulate)
        if any(epoch.step != steps * epoch.epoch for epoch in record.history):
            yield f"its steps are not {steps} in each epoch, which its examples and batches give"
    if record.status == "finished" and cost.examples != trained * record.history[-1].epoch:
        yield f"it trained on {cost.examples} examples, and not on {trained} in each epoch"


def _check_epoch(cfg: Config, epoch: Epoch) -> Iterator[str]:
    """Yield what an epoch notes and its config does not ask for, and the values that are not possible."""
    task, entries, where = cfg.task, epoch.model_extra or {}, f"of epoch {epoch.epoch}"
    known = {*task.evaluated, "explained_variance"}
    if not cfg.monitors and (others := entries.keys() - known):
        yield f"{', '.join(sorted(others))} {where}: its config asks for no such entry"
    metrics = {*task.metrics, "constant_predictor", *kind_of(task).also_scored}
    for split in task.evaluated:
        scores = epoch.metrics(split)
        if others := scores.keys() - metrics:
            yield f"{', '.join(sorted(others))} {where}: its task has no such metric"
        if any(abs(value or 0) > 1 + ROUNDING for name, value in scores.items() if name != "loss"):
            yield f"a metric {where} is no fraction"
    curves = epoch.noted("explained_variance")
    for name, curve in curves.items():
        shares = np.diff(np.array([0.0, *curve], np.float64))  # NaN where undefined, which is in no order
        if (shares < -ROUNDING).any() or (np.diff(shares) > ROUNDING).any() or (shares.sum() > 1 + ROUNDING):
            yield f"the explained variance of {name} {where} is not that of sorted components"
    yield from _find_impossible(epoch.isotropy, where)
    for name, value in epoch.isotropy.items():
        matrix, _, measure = name.rpartition("/")
        curve, place = curves.get(matrix), measure.removeprefix("ev")
        if isinstance(curve, list) and place.isdecimal() and curve[int(place) - 1 : int(place)] != [value]:
            yield f"{name} {where} is not that of its curve of explained variance"


def _find_impossible(isotropy: Mapping[str, float | None], where: str) -> Iterator[str]:
    for name, value in isotropy.items():
        if value is not None and not is_possible(name.rpartition("/")[2], value):
            yield f"{name} {where} is {value}, which no vectors have"


def _check_predictions(folder: RunFolder, run: CheckedRun, outcomes: Outcomes) -> None:
    """Compare a run's predictions with their checksum, and compute the reported epoch's scores again from them."""
    record, cfg = run.record, run.cfg
    assert record is not None
    assert cfg is not None
    if record.best is not None and record.best.isotropy and None not in record.best.isotropy.values():
        run.traces["isotropy"] = sha256_json(record.best.isotropy)
    if not is_known(cfg.task):
        target = name_kind(cfg.task)
        outcomes.note(run.name, "scores", UNCHECKED, f"its task is of the kind {target}, which needs --trust")
        return
    try:
        table = folder.read_predictions()
        if table is None and (record.predictions or record.best is None):
            run.lacks_predictions = record.best is not None
            return
        if record.best is None or record.predictions is None:
            raise ValueError("its record names none")
        if not folder.bundle and not is_intact(folder.predictions_file, record.predictions.sha256):
            raise ValueError("their sha256 is not the record's")
        splits = parse_predictions(table, cfg.task, record.data.examples)
    except Exception as error:  # a damaged Parquet file may raise anything
        outcomes.note(run.name, "scores", FAILS, f"its predictions can't be used: {extract_first_line(error)}")
        return
    _check_scores(run.name, record, cfg.task, splits, outcomes)
    run.labels = {split: predicted.hash_labels() for split, predicted in splits.items()}
    logits = [split.logits for split in splits.values() if split.logits is not None]
    if any((values != values[:1]).any() for values in logits):  # else they may come from a bias alone
        run.traces["logits"] = hashlib.sha256(b"".join(values.tobytes() for values in logits)).hexdigest()


def _check_scores(
    name: str, record: RunRecord, task: Task, splits: Mapping[str, PredictedSplit], outcomes: Outcomes
) -> None:
    """Compare every metric of the reported epoch with the one that its predictions give.

    A difference in the last digits is no failure: a record can't tell all that decides them, because virtual machines
    hide the model of their processor.
    """
    assert record.best is not None
    problems, roundings = list[str](), list[str]()
    for split in task.evaluated:
        recorded = record.best.metrics(split)
        for metric, value in _compute_metrics(task, splits[split]).items():
            text = f"{metric} on {split} is {recorded.get(metric)}, and its predictions give {value}"
            if not _is_close(recorded.get(metric), value):
                problems.append(text)
            elif recorded.get(metric) != value and not math.isnan(value):
                roundings.append(text)
        if lacking := set(task.metrics) - recorded.keys():
            problems.append(f"its reported epoch lacks {', '.join(sorted(lacking))} on {split}")
    outcomes.judge(name, "scores", problems)
    for text in roundings:
        outcomes.note(name, "scores", DIFFERS, f"{text}: rounding of other versions or of another processor")


def _compute_metrics(task: Task, split: PredictedSplit) -> dict[str, Any]:
    """Compute a split's metrics as the training loop does, and whether the model predicts one thing for all."""
    scores = kind_of(task).score(task, split.labels, split.predictions)
    return {**scores, "constant_predictor": bool(is_constant(split.predictions))}


def _is_close(recorded: Any, computed: Any) -> bool:
    """Compare a recorded metric, None where it is undefined, with a computed one, where it is NaN then."""
    if isinstance(computed, bool) or type(recorded) not in (int, float):
        return recorded is computed or (recorded is None and math.isnan(computed))
    return math.isclose(recorded, computed, rel_tol=ROUNDING, abs_tol=ROUNDING)


def compare_runs(runs: Collection[CheckedRun], is_bundle: bool, outcomes: Outcomes) -> None:
    """Compare runs with each other: labels, copies, and whether one lacks predictions that others have."""
    _compare_labels(runs, outcomes)
    _find_copies(runs, outcomes)
    others = sum(bool(run.labels) for run in runs) if is_bundle else 0  # one may remove one's own
    for run in runs:
        if run.lacks_predictions and others:
            outcomes.note(run.name, "scores", FAILS, f"its predictions are missing, and {others} run(s) have theirs")
        elif run.lacks_predictions:
            outcomes.note(run.name, "scores", UNCHECKED, "no predictions")


def _find_copies(runs: Iterable[CheckedRun], outcomes: Outcomes) -> None:
    """Check that no run has another's logits or isotropy, bit for bit, unless their settings can give that.

    Runs of two methods can agree: I-STAR of strength 0 is plain fine-tuning. Runs with other seeds, another learning
    rate or other examples can't, because every logit follows from these.
    """
    first: dict[tuple[str, str], tuple[str, Config, RunRecord]] = {}
    for run in runs:
        if run.record is None or run.cfg is None or not run.traces:
            continue
        problems = []
        for what, trace in run.traces.items():
            other, cfg, record = first.setdefault((what, trace), (run.name, run.cfg, run.record))
            seeds = [(record.seeds.get(stream), run.record.seeds.get(stream)) for stream in STREAMS]
            differences = ["other seeds"] if all(one != two for one, two in seeds) else []
            differences += ["another learning rate"] if cfg.optimization.lr != run.cfg.optimization.lr else []
            pair = ((cfg, record), (run.cfg, run.record))
            before, now = (own.data.examples.get(of.task.train_split) for of, own in pair)
            differences += ["other data"] if before != now else []
            if differences:
                problems.append(f"it has the {what} of {other} to the bit, and {', '.join(differences)}")
        outcomes.judge(run.name, "copies", problems[:1])


def _compare_labels(runs: Iterable[CheckedRun], outcomes: Outcomes) -> None:
    """Check that runs on the same data and task have the same labels, and as many; rarer ones are wrong."""
    groups: dict[str, dict[str, str]] = {}
    for run in runs:
        if run.record and run.cfg and run.labels:
            group = sha256_json([run.record.data.fingerprint, select_decisive("task", run.cfg.task)])
            groups.setdefault(group, {})[run.name] = sha256_json([run.labels, run.record.data.examples])
    for labels_by_name in groups.values():
        counts = Counter(labels_by_name.values())
        usual = multimode(labels_by_name.values())
        for name, labels in labels_by_name.items():
            others = len(labels_by_name) - counts[labels]
            problem = f"its labels or numbers of examples are not those of {others} other run(s) on the same data"
            if len(labels_by_name) > 1:
                outcomes.judge(name, "labels", [] if usual == [labels] else [problem])


def parse_predictions(table: pyarrow.Table, task: Task, examples: Mapping[str, int]) -> dict[str, PredictedSplit]:
    """Read the predictions of every split that a task evaluates, and of its test split.

    ``examples``: split -> number of examples, as recorded; empty if they are not to be compared. ValueError if the
    file has other columns, splits or numbers of examples, or predictions that don't follow from the logits.
    """
    kind = kind_of(task)
    columns = KEY_COLUMNS | {name: TYPES[holds] for name, holds in kind.columns().items()}
    types = [own.value_type if pyarrow.types.is_dictionary(own) else own for own in table.schema.types]
    found = list(zip(table.column_names, types, strict=True))
    if found != list(columns.items()):
        raise ValueError(f"the columns are {found}, and should be {columns}")
    names = [*task.evaluated, *([task.test_split] if task.test_split else [])]
    stored_splits = table["split"].unify_dictionaries().combine_chunks()
    if stored_splits.unique().to_pylist() != names:
        raise ValueError(f"they are of the splits {stored_splits.unique().to_pylist()}, and the run's are {names}")
    splits, start = {}, 0
    for name in names:
        count = pc.sum(pc.equal(stored_splits, name)).as_py()
        rows = table.slice(start, count)
        if examples and examples.get(name) != count:
            raise ValueError(f"{name} has {count} rows, and its record says {examples.get(name)} examples")
        if rows["index"].to_numpy().tolist() != list(range(count)) or rows["split"].unique().to_pylist() != [name]:
            raise ValueError(f"the rows of {name} are not in the order of the data")
        splits[name] = kind.parse(rows, task, name)
        start += count
    return splits
