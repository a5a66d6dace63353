"""Check runs by their own files: record, config, key, predictions and scores agree with each other."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from isobench.common.environment import read_git_state, read_package_version
from isobench.common.errors import extract_first_line
from isobench.common.files import SETTINGS_LIMIT, check_text_checksum, replace_non_finite, sha256_json
from isobench.config.bounds import check_value
from isobench.config.schema import LAST_EPOCH, Config, Task, config_from_plain
from isobench.data.scale import find_scale_differences
from isobench.metrics.generated_text import evaluate_texts
from isobench.metrics.task import evaluate_predictions, is_constant
from isobench.runs.folder import CONFIG_FILE, PREDICTIONS_FILE, RECORD_FILE, run_folder_name
from isobench.runs.identity import compute_key, resolve_seeds, select_decisive
from isobench.runs.plan import parse_config
from isobench.runs.record import RunRecord, parse_record
from isobench.verification.classes import find_other_class
from isobench.verification.folder import TABLE_LIMIT, VerifiedFolder
from isobench.verification.outcomes import DIFFERS, FAILS, UNCHECKED, Outcomes
from isobench.verification.predictions import PredictedSplit, read_predictions

ROUNDING = 1e-9  # by which other versions and processors may round a score, a fraction


@dataclass
class CheckedRun:
    """One run's folder and what is left of it once it was checked.

    Args:
        name: the folder's name, the first digits of the run's key.
        record: None if it has not ended, or its record or config can't be used.
        cfg: None if its config can't be read or is not valid.
        labels: split -> hash of the labels in its predictions; None if these are absent or can't be read.
        has_unusable_predictions: its file of predictions is a link, damaged, or not of the form that runs write.
    """

    name: str
    record: RunRecord | None = None
    cfg: Config | None = None
    labels: dict[str, str] | None = None
    has_unusable_predictions: bool = False


def check_run(folder: VerifiedFolder, name: str, outcomes: Outcomes) -> CheckedRun:
    """Check a run's record, config, key and scores; nothing that its files name is opened.

    A run without a record has not ended; in a bundle that is a failure, because every run of a bundle has one.
    """
    run, path = CheckedRun(name), f"runs/{name}"
    try:
        run.cfg = read_config(folder.read(f"{path}/{CONFIG_FILE}", SETTINGS_LIMIT), name)
    except Exception as error:  # a stranger's config may be wrong in any way
        outcomes.note(name, "config", FAILS, f"config.yaml can't be used: {extract_first_line(error)}")
    try:
        record = parse_record(folder.read(f"{path}/{RECORD_FILE}"), Path(path, RECORD_FILE))
        if run.cfg is not None:
            _check_contents(folder, name, run.cfg, record, outcomes)
            run.record = record
            _check_predictions(folder, run, outcomes)
    except FileNotFoundError as error:
        if folder.is_bundle or f"{path}/{RECORD_FILE}" in folder.refused:
            outcomes.note(name, "record", FAILS, extract_first_line(error))
        else:
            outcomes.note(name, "record", UNCHECKED, "it has not ended")
    except Exception as error:  # as above
        outcomes.note(name, "record", FAILS, extract_first_line(error))
        run.record = None
    return run


def read_config(content: bytes, name: str) -> Config:
    """Read a run's config and check every value's type and bounds; ``name``: of its folder.

    Raises:
        Exception: it is damaged, another run's, or not valid in this version.
    """
    cfg = parse_config(check_text_checksum(content.decode(), name))
    check_value("", cfg, Config)
    return cfg


def _check_contents(folder: VerifiedFolder, name: str, cfg: Config, record: RunRecord, outcomes: Outcomes) -> None:
    """Check that record, config, key and folder are of one run."""
    other_class = find_other_class(cfg)  # the class of a method is not in the key
    outcomes.judge(name, "config", [*_compare_configs(cfg, record), *([other_class] if other_class else [])])
    problems = [] if run_folder_name(record.key) == name else [f"its record is that of {run_folder_name(record.key)}"]
    if record.seeds != resolve_seeds(cfg):
        problems.append("its seeds are not those of its config")
    if record.scale.name != cfg.scale:
        problems.append(f"its scale {record.scale.name!r} is not that of its config")
    outcomes.judge(name, "record", problems + check_schedule(cfg, record))
    _check_scale(name, cfg, record, outcomes)
    key = compute_key(cfg, record.data.fingerprint, record.encoder.fingerprint)
    is_same = key == record.key
    outcomes.judge(name, "key", [] if is_same else [f"its settings and fingerprints give {run_folder_name(key)}"])


def _compare_configs(cfg: Config, record: RunRecord) -> list[str]:
    """Return what is wrong if the record's config is not that of config.yaml."""
    if record.config == replace_non_finite(asdict(cfg)):
        return []
    recorded = config_from_plain(record.config)  # an earlier version's has fewer settings
    names = [name for name, value in vars(cfg).items() if getattr(recorded, name) != value]
    return [f"the record's config and config.yaml differ in {', '.join(names)}"] if names else []


def check_schedule(cfg: Config, record: RunRecord) -> list[str]:
    """Return what is wrong if the epochs of the history are not those at which the config evaluates."""
    o, every = cfg.optimization, cfg.evaluation.every
    interval = o.epochs if every == LAST_EPOCH else int(every)
    planned = -(-o.epochs // interval)  # not a list: a stranger's config may name any number of epochs
    epochs = [epoch.epoch for epoch in record.history]
    if epochs != [min(number * interval, o.epochs) for number in range(1, min(len(epochs), planned) + 1)]:
        return ["its history has not the epochs that its config evaluates"]
    if record.status == "finished" and len(epochs) < planned and o.patience is None:
        return [f"it is finished, and its history ends after {len(epochs)} of {planned} evaluations"]
    return []


def _check_scale(name: str, cfg: Config, record: RunRecord, outcomes: Outcomes) -> None:
    """Check what the record says of the differences from the paper's setting; other versions may say it otherwise.

    A record that says less is a failure in any case: a report would take the run for one at the paper's scale.
    What depends on the names of data files is not checked, because no path of a config is followed.
    """
    found = set(find_scale_differences(replace(cfg, data=replace(cfg.data, root=None))))
    recorded = {phrase for phrase in record.scale.differs if not phrase.startswith("read from ")}
    text = f"its differences from the paper's setting should be: {'; '.join(sorted(found)) or 'none'}"
    git = record.provenance.git
    made_by = (git.commit if git else None, record.provenance.versions.get("isobench"))
    if found != recorded and (made_by == read_software() or len(recorded) < len(found)):
        outcomes.note(name, "record", FAILS, text)
    elif found != recorded:
        outcomes.note(name, "record", DIFFERS, f"{text}, by this version; another version made the record")


@cache
def read_software() -> tuple[str | None, str | None]:
    """Return the commit, None outside of a checkout, and the version of isobench that verifies."""
    git = read_git_state()
    return (git["commit"] if git else None), read_package_version("isobench")


def _check_predictions(folder: VerifiedFolder, run: CheckedRun, outcomes: Outcomes) -> None:
    """Compare a run's predictions with their checksum, and compute the reported epoch's scores again from them."""
    record, cfg, file = run.record, run.cfg, f"runs/{run.name}/{PREDICTIONS_FILE}"
    assert record is not None
    assert cfg is not None
    if not folder.has(file) and file not in folder.refused:
        if record.best is not None:
            outcomes.note(run.name, "scores", UNCHECKED, "no predictions")
        return
    try:
        if record.best is None or record.predictions is None:
            raise ValueError("its record names none")
        content = folder.read(file, TABLE_LIMIT)
        if folder.digest(file) != record.predictions.sha256:
            raise ValueError("their sha256 is not the record's")
        splits = read_predictions(content, cfg.task, record.data.examples)
    except Exception as error:  # a damaged Parquet file may raise anything
        outcomes.note(run.name, "scores", FAILS, f"its predictions can't be used: {extract_first_line(error)}")
        run.has_unusable_predictions = True
        return
    _check_scores(run.name, record, cfg.task, splits, outcomes)
    run.labels = {split: own.hash_labels() for split, own in splits.items()}


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
    if task.generation:
        scores = evaluate_texts(list(task.metrics), list(split.labels), list(split.predictions))
    else:
        scores = evaluate_predictions(list(task.metrics), split.labels, split.predictions)
    return {**scores, "constant_predictor": bool(is_constant(split.predictions))}


def _is_close(recorded: Any, computed: Any) -> bool:
    """Compare a recorded metric, None where it is undefined, with a computed one, where it is NaN then."""
    if isinstance(computed, bool) or type(recorded) not in (int, float):
        return recorded is computed or (recorded is None and math.isnan(computed))
    return math.isclose(recorded, computed, rel_tol=ROUNDING, abs_tol=ROUNDING)


def check_labels(runs: Iterable[CheckedRun], outcomes: Outcomes) -> None:
    """Check that runs on the same data and task have the same labels; those that fewer runs have are wrong."""
    groups: dict[str, dict[str, str]] = {}
    for run in runs:
        if run.record and run.cfg and run.labels:
            group = sha256_json([run.record.data.fingerprint, select_decisive("task", run.cfg.task)])
            groups.setdefault(group, {})[run.name] = sha256_json(run.labels)
    for labels_by_name in groups.values():
        counts = Counter(labels_by_name.values())
        most = max(counts.values())
        usual = [labels for labels, count in counts.items() if count == most]
        for name, labels in labels_by_name.items():
            others = len(labels_by_name) - counts[labels]
            is_right = usual == [labels]
            problem = f"its labels are not those of {others} other run(s) on the same data"
            if len(labels_by_name) > 1:
                outcomes.judge(name, "labels", [] if is_right else [problem])
