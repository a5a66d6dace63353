"""Read and write a run's record, ``result.json``."""

import hashlib
import json
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import replace_non_finite, write_text
from isobench.common.reading import RECORD_LIMIT, read_bounded
from isobench.config.schema import HELD_OUT
from isobench.runs.record import RECORD_FORMAT, Epoch, RunRecord

OLDEST_FORMAT = 2  # that is read; like format 3, but without a checksum
CHECKSUM_START = ',\n "checksum": "'  # how the last entry of a record's text begins


def read_record_file(file: Path) -> RunRecord:
    """Read a ``result.json``, and check it as `parse_record` does.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file.
        UserError: the record is damaged, or another version's, in another format.
    """
    try:
        text = read_bounded(file, RECORD_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise _make_damage_error(file, error) from error
    return parse_record(text, file)


def parse_record(text: bytes, file: Path) -> RunRecord:
    """Parse a record, and check it: its checksum, its shape, and that its scores agree with each other.

    Args:
        text: the content of a ``result.json``.
        file: the path that error messages name.

    Raises:
        UserError: the record is damaged, or another version's, in another format.
    """
    try:
        content = orjson.loads(text)  # refuses NaN and infinities
        version = content["format"]
        if type(version) is int and version > RECORD_FORMAT:
            raise UserError(f"{file} has format {version} and this isobench reads {RECORD_FORMAT}: update isobench")
        if type(version) is int and 1 <= version < OLDEST_FORMAT:
            raise UserError(f"{file} was written by an earlier version of isobench; remove it to run again")
        _require_checksum(text, required=version != OLDEST_FORMAT)
        record = RunRecord.model_validate(content)
        _check_epochs(record)
        return record
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _make_damage_error(file, error) from error


def _make_damage_error(file: Path, error: Exception) -> UserError:
    return UserError(f"{file} is damaged; remove it to run again ({_describe_damage(error)})")


def _describe_damage(error: Exception) -> str:
    """Say in a few words what is wrong with a record that can't be read."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"it lacks {error}" if isinstance(error, KeyError) else extract_first_line(error)


def _require_checksum(text: bytes, required: bool) -> None:
    """Raise ValueError if the checksum at the end of a record's text is not that of the text, or is lacking."""
    content, start, _ = text.rpartition(CHECKSUM_START.encode())
    if not start and required:
        raise ValueError("it has no checksum")
    if start and add_checksum(content + b"\n}") != text:
        raise ValueError("it was changed after it was written")


def add_checksum(text: bytes) -> bytes:
    """Return a record's text with the entry ``checksum`` at its end: the sha256 of the text without it.

    Args:
        text: JSON with an indent of one space.
    """
    digest = hashlib.sha256(text).hexdigest()
    return text.removesuffix(b"\n}") + f'{CHECKSUM_START}{digest}"\n}}\n'.encode()


def format_record(content: dict[str, Any]) -> bytes:
    """Return the text of a ``result.json`` with this content, and with a checksum of it.

    Raises:
        ValueError: a number is not finite.
    """
    named = {name: value for name, value in content.items() if name != "checksum"}
    return add_checksum(json.dumps(named, indent=1, allow_nan=False).encode())


def write_record_file(file: Path, record: RunRecord) -> None:
    """Write a ``result.json`` atomically. Numbers that are not finite become null; fields never set are left out."""
    text = format_record(replace_non_finite(record.model_dump(exclude_unset=True))).decode()
    write_text(file, text)


def _check_epochs(record: RunRecord) -> None:
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
        _check_scores(epoch, task["primary"], splits)
    if not record.history:
        raise ValueError("the best epoch is not in the history")
    if record.config["optimization"].get("report") == "last":
        reported = record.history[-1]
    else:
        reported = max(record.history, key=lambda epoch: epoch.selection)  # the first of equals
    if record.best != reported:
        raise ValueError(f"the best epoch is not epoch {reported.epoch} of the history")


def _check_scores(epoch: Epoch, primary: str, splits: list[str]) -> None:
    """Check that the scores of an epoch are its metrics, and that these are numbers.

    Args:
        epoch: the epoch.
        primary: the metric that is the score.
        splits: those that the run is evaluated on: the first gives ``score``, and ``selection`` unless there is a
            held-out share.
    """
    for split in splits:
        metrics = epoch.metrics(split)
        if primary not in metrics or not isinstance(metrics.get("constant_predictor"), bool):
            raise ValueError(f"epoch {epoch.epoch} lacks its metrics on {split}")
        if not all(isinstance(value, bool | int | float | None) for value in metrics.values()):
            raise ValueError(f"a metric of epoch {epoch.epoch} on {split} is not a number")
    deciding = HELD_OUT if HELD_OUT in splits else splits[0]
    for name, value, split in (("score", epoch.score, splits[0]), ("selection", epoch.selection, deciding)):
        if value != _read_score(epoch.metrics(split), primary):
            raise ValueError(f"the {name} of epoch {epoch.epoch} is not its {primary} on {split}")


def _read_score(metrics: dict[str, Any], primary: str) -> float:
    return 0.0 if metrics[primary] is None else float(metrics[primary])
