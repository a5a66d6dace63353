"""Compute scores anew from predictions and labels, and compare them with a record's."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from isobench.common.files import sha256_json
from isobench.config.schema import Task
from isobench.metrics.generated_text import evaluate_texts
from isobench.metrics.task import evaluate_predictions, is_constant
from isobench.runs.identity import select_decisive
from isobench.runs.record import RunRecord
from isobench.verification.ledger import Ledger
from isobench.verification.predictions import PredictedSplit

ROUNDING = 1e-9  # by which other versions and processors may round a score, a fraction


def check_scores(
    name: str, record: RunRecord, task: Task, splits: Mapping[str, PredictedSplit], ledger: Ledger
) -> None:
    """Compare every metric of the reported epoch with the one that its predictions give.

    A difference in the last digits is no failure: a record can't tell all that decides them, because virtual machines
    hide the model of their processor.
    """
    assert record.best is not None
    problems, roundings = list[str](), list[str]()
    for split in task.evaluated:
        own, recorded = splits[split], record.best.metrics(split)
        computed: dict[str, Any] = compute_metrics(task, own)
        for metric, value in computed.items():
            if equals(recorded.get(metric), value):
                continue
            text = f"{metric} on {split} is {recorded.get(metric)}, and its predictions give {value}"
            (roundings if is_close(recorded.get(metric), value) else problems).append(text)
        if set(task.metrics) - recorded.keys():
            problems.append(f"its reported epoch lacks {', '.join(set(task.metrics) - recorded.keys())} on {split}")
    ledger.judge(name, "scores", problems)
    for text in roundings:
        ledger.differ(name, "scores", f"{text}: rounding of other versions or of another processor")


def compute_metrics(task: Task, split: PredictedSplit) -> dict[str, Any]:
    """Compute a split's metrics as the training loop does, and whether the model predicts one thing for all."""
    if task.generation:
        scores = evaluate_texts(list(task.metrics), list(split.labels), list(split.predictions))
    else:
        scores = evaluate_predictions(list(task.metrics), split.labels, split.predictions)
    return {**scores, "constant_predictor": bool(is_constant(split.predictions))}


def equals(recorded: Any, computed: Any) -> bool:
    """Compare a recorded metric, None where it is undefined, with a computed one, where it is NaN then."""
    if isinstance(computed, bool):
        return recorded is computed
    return recorded is None if math.isnan(computed) else recorded == computed


def is_close(recorded: Any, computed: Any) -> bool:
    """Return True if two numbers differ by rounding only."""
    numbers = isinstance(recorded, float) and isinstance(computed, float)
    return numbers and math.isclose(recorded, computed, rel_tol=ROUNDING, abs_tol=ROUNDING)


def check_labels(runs: Iterable[tuple[str, RunRecord, Task, dict[str, str]]], ledger: Ledger) -> None:
    """Check that runs on the same data and task have the same labels.

    Args:
        runs: each run's name, record, task, and the hash of its labels by split.
        ledger: where the outcomes go.
    """
    groups: dict[str, dict[str, str]] = {}
    for name, record, task, hashes in runs:
        group = sha256_json([record.data.fingerprint, select_decisive("task", task)])
        groups.setdefault(group, {})[name] = sha256_json(hashes)
    for labels_by_name in groups.values():
        counts = Counter(labels_by_name.values())
        if len(labels_by_name) == 1:
            continue
        if len(counts) == 1:
            for name in labels_by_name:
                ledger.hold(name, "labels")
            continue
        (usual, most), (_, second) = counts.most_common(2)
        for name, labels in labels_by_name.items():
            if most > second and labels == usual:
                ledger.hold(name, "labels")
            else:
                others = len(labels_by_name) - counts[labels]
                ledger.fail(name, "labels", f"its labels are not those of {others} other run(s) on the same data")
