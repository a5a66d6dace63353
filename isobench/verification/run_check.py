"""Check runs by what a folder holds of them: record, config, key, predictions and scores agree with each other.

Predictions have the columns that isobench.runs.folder writes: ``split`` and ``index``, then those of the task's kind.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import multimode
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute as pc

from isobench.common.errors import extract_first_line
from isobench.common.files import sha256_json
from isobench.config.bounds import check_value
from isobench.config.schema import Config, Task, config_from_plain
from isobench.data.scale import drop_paper_remarks, find_scale_differences
from isobench.metrics.task import is_constant
from isobench.runs.folder import RunFolder, is_intact, run_folder_name
from isobench.runs.grouping import read_run_names
from isobench.runs.identity import compute_key, resolve_seeds, select_decisive
from isobench.runs.record import RunRecord, parse_record
from isobench.runs.trust import find_other_classes
from isobench.tasks.kind import is_known, kind_of, load_kind, name_kind
from isobench.tasks.predictions import PredictedSplit
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
    is_own = record.key == folder.key if folder.bundle else record.key.startswith(folder.key)
    problems = [] if is_own else [f"its record is that of {run_folder_name(record.key)}"]
    if record.seeds != resolve_seeds(cfg):
        problems.append("its seeds are not those of its config")
    if record.scale.name != cfg.scale:
        problems.append(f"its scale {record.scale.name!r} is not that of its config")
    found = drop_paper_remarks(find_scale_differences(cfg, ()))  # follows no path of the config
    if unsaid := [phrase for phrase in found if phrase not in record.scale.differs]:
        problems.append(f"it does not say: {'; '.join(unsaid)}")
    outcomes.judge(name, "record", problems)
    key = compute_key(cfg, record.data.fingerprint, record.encoder.fingerprint)
    is_same = key == record.key
    outcomes.judge(name, "key", [] if is_same else [f"its settings and fingerprints give {run_folder_name(key)}"])


def _check_predictions(folder: RunFolder, run: CheckedRun, outcomes: Outcomes) -> None:
    """Compare a run's predictions with their checksum, and compute the reported epoch's scores again from them."""
    record, cfg = run.record, run.cfg
    assert record is not None
    assert cfg is not None
    if not is_known(cfg.task):
        target = name_kind(cfg.task)
        outcomes.note(run.name, "scores", UNCHECKED, f"its task is of the kind {target}, which needs --trust")
        return
    try:
        table = folder.read_predictions()
        if table is None and (record.predictions or record.best is None):
            run.lacks_predictions = record.best is not None  # else no epoch ended, and there never were any
            return
        if record.best is None or record.predictions is None:
            raise ValueError("its record names none")
        if not folder.bundle and not is_intact(folder.predictions_file, record.predictions.sha256):
            raise ValueError("their sha256 is not the record's")
        splits = parse_predictions(table, cfg.task, record.data.examples)
    except Exception as error:  # a damaged Parquet file may raise anything
        outcomes.note(run.name, "scores", FAILS, f"its predictions can't be used: {extract_first_line(error)}")
        return
    computed = _check_scores(run.name, record, cfg.task, splits, outcomes)
    outcomes.scores.append((*read_run_names(cfg), computed, record.best.score))
    run.labels = {split: predicted.hash_labels() for split, predicted in splits.items()}


def _check_scores(
    name: str, record: RunRecord, task: Task, splits: Mapping[str, PredictedSplit], outcomes: Outcomes
) -> float:
    """Compare every metric of the reported epoch with the one that its predictions give, and return the score's.

    A difference in the last digits is no failure: a record can't tell all that decides them, because virtual machines
    hide the model of their processor.
    """
    assert record.best is not None
    problems, roundings = list[str](), list[str]()
    computed = {split: _compute_metrics(task, splits[split]) for split in task.evaluated}
    for split, metrics in computed.items():
        recorded = record.best.metrics(split)
        for metric, value in metrics.items():
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
    score = float(computed[task.dev_splits[0]][task.primary])
    return 0.0 if math.isnan(score) else score  # as a record has it


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
    """Compare runs with each other: labels, and whether one of a bundle lacks predictions that others have."""
    _compare_labels(runs, outcomes)
    others = sum(bool(run.labels) for run in runs) if is_bundle else 0  # an output folder's may have been removed
    for run in runs:
        if run.lacks_predictions and others:
            outcomes.note(run.name, "scores", FAILS, f"its predictions are missing, and {others} run(s) have theirs")
        elif run.lacks_predictions:
            outcomes.note(run.name, "scores", UNCHECKED, "no predictions")


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
        in_order = np.array_equal(rows["index"].to_numpy(), np.arange(count))
        if not in_order or rows["split"].unique().to_pylist() != [name]:
            raise ValueError(f"the rows of {name} are not in the order of the data")
        splits[name] = kind.parse(rows, task, name)
        start += count
    return splits
