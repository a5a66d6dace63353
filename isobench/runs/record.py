"""A run's record, and whether one is whole."""

import math
from typing import Any

RECORD_FORMAT = 1  # of result.json
RECORD_FIELDS = {"status", "failure", "best", "cost", "scale", "warnings", "config"}


def is_valid_record(record: dict[str, Any]) -> bool:
    """True if a record has, inside its parts, what its readers take for granted."""
    cost, scale, failure, best = (record[name] for name in ("cost", "scale", "failure", "best"))
    history: Any = record.get("history")
    if not all(isinstance(part, dict) for part in (cost, scale, record["config"])):
        return False
    if not all(isinstance(part, list) for part in (history, scale.get("differs"), record["warnings"])):
        return False
    timed = is_number(cost.get("seconds")) and (not history or is_number(cost.get("training_seconds")))
    named = failure is None or (isinstance(failure, dict) and "name" in failure)
    evaluated = all(is_valid_epoch(epoch) and "step" in epoch for epoch in history)
    return timed and named and evaluated and (best is None or is_valid_best_epoch(best, record["config"]))


def is_valid_best_epoch(best: Any, config: dict[str, Any]) -> bool:
    """True if the reported epoch has its metrics on the first dev split."""
    task = config.get("task")
    splits = task.get("dev_splits") if isinstance(task, dict) else None
    metrics = best.get(splits[0]) if is_valid_epoch(best) and isinstance(splits, list) and splits else None
    return isinstance(metrics, dict) and "constant_predictor" in metrics


def is_valid_epoch(epoch: Any) -> bool:
    """True for an epoch's entry: its number, its score (null where undefined), isotropies if they were measured."""
    if not isinstance(epoch, dict) or not {"epoch", "score"} <= epoch.keys():
        return False
    return (epoch["score"] is None or is_number(epoch["score"])) and isinstance(epoch.get("isotropy", {}), dict)


def is_number(value: Any) -> bool:
    """True for a number, which a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def replace_non_finite(value: Any) -> Any:
    """A copy in which NaN and infinities are None, as JSON has no words for them."""
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
