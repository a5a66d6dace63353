"""Check that the parts of a run's record agree: epochs with their metrics, the reported epoch with the history."""

from typing import Any

from isobench.config.schema import HELD_OUT
from isobench.runs.record import Epoch, RunRecord


def check_epochs(record: RunRecord) -> None:
    """Check a record's epochs against each other and against its config.

    Epochs are in order. The score of each is its primary metric on the first dev split, 0 where that is undefined,
    and ``selection`` the same of the split that decides. The reported epoch is the one of the history that
    ``optimization.report`` asks for.

    Raises:
        ValueError: they disagree, and how.
        LookupError, TypeError, AttributeError: a part of the config is missing, or of the wrong kind.
    """
    if record.best is None and not record.history:
        return
    task = record.config["task"]
    splits = [*task["dev_splits"], *([HELD_OUT] if task.get("held_out") is not None else [])]
    last_epoch = 0
    for epoch in record.history:
        if epoch.epoch <= last_epoch:
            raise ValueError("the epochs of the history are not in order")
        last_epoch = epoch.epoch
        check_scores(epoch, task["primary"], splits)
    if not record.history:
        raise ValueError("the best epoch is not in the history")
    if record.config["optimization"].get("report") == "last":
        reported = record.history[-1]
    else:
        reported = max(record.history, key=lambda epoch: epoch.selection)  # the first of equals
    if record.best != reported:
        raise ValueError(f"the best epoch is not epoch {reported.epoch} of the history")


def check_scores(epoch: Epoch, primary: str, splits: list[str]) -> None:
    """Check that the scores of an epoch are its metrics, and that these are numbers.

    Args:
        epoch: an epoch of a record that was read from a file, where an undefined metric is None.
        primary: the metric that is the score.
        splits: those that the run is evaluated on: the first gives ``score``, and ``selection`` unless there is a
            held-out share.

    Raises:
        ValueError: a split or a metric is missing, or a number differs.
    """
    for split in splits:
        metrics = epoch.metrics(split)
        if primary not in metrics or not isinstance(metrics.get("constant_predictor"), bool):
            raise ValueError(f"epoch {epoch.epoch} lacks its metrics on {split}")
        if not all(isinstance(value, bool | int | float | None) for value in metrics.values()):
            raise ValueError(f"a metric of epoch {epoch.epoch} on {split} is not a number")
    deciding = HELD_OUT if HELD_OUT in splits else splits[0]
    for name, value, split in (("score", epoch.score, splits[0]), ("selection", epoch.selection, deciding)):
        if value != read_score(epoch.metrics(split), primary):
            raise ValueError(f"the {name} of epoch {epoch.epoch} is not its {primary} on {split}")


def read_score(metrics: dict[str, Any], primary: str) -> float:
    """Return the primary metric, 0 where it is undefined."""
    value = metrics[primary]
    return 0.0 if value is None else float(value)
