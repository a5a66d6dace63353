"""A run's identity, folder, lock and record.

A run is what decides its result: its key is the sha256 of the resolved config less everything that
doesn't (paths, tracking, where and how fast it runs), the data's fingerprint and the encoder's.
"""

import contextlib
import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import filelock
import yaml

from isobench import weights
from isobench.data import sources
from isobench.errors import StorageError, UserError
from isobench.files import is_storage_error, remove_temporaries, replace_text, sha256_json, storage_error, write_json
from isobench.schema import Config
from isobench.seeding import resolve_seeds

PROTOCOL = 2  # raise it when the training loop changes what a config gives
FORMAT = 1  # of result.json
REQUIRED = {"status", "failure", "best", "cost", "scale", "warnings", "config"}
# Settings that don't decide a result, or stand in the fingerprints already.
NOT_IN_KEY = {
    "task": {"hub", "subset", "revision", "embedded", "folder"},
    "encoder": {"hub", "revision", "embedded", "path", "trust_remote_code"},
    "trainer": {"accelerator", "threads", "progress_bar"},
}
SECTIONS = ("seed", "task", "encoder", "calibration", "head", "optimization", "trainer", "monitors")


@dataclass(frozen=True)
class Identity:
    """``key`` (64 hex digits) and the fingerprints that went into it."""

    key: str
    data: dict[str, str]
    encoder: dict[str, str]


def identify(cfg: Config) -> Identity:
    """The key of the run a valid config describes. Reads files' hashes; imports nothing heavy.

    Raises:
        UserError: data or weights that are not there.
    """
    data = sources.fingerprint(cfg.task, cfg.data)
    encoder = weights.fingerprint(cfg.encoder)
    decisive: dict[str, Any] = {section: plain(getattr(cfg, section)) for section in SECTIONS}
    for section, names in NOT_IN_KEY.items():
        decisive[section] = {k: v for k, v in decisive[section].items() if k not in names}
    # A setting that is not set decides nothing: one that is added later leaves the keys of runs as they are.
    decisive = {name: drop_none(section) for name, section in decisive.items()}
    if cfg.task.generation:
        decisive["task"]["generation"] = drop_none(plain(cfg.task.generation))
    decisive |= {"seeds": resolve_seeds(cfg), "protocol": PROTOCOL, "data": data, "weights": encoder}
    return Identity(sha256_json(decisive), data, encoder)


def drop_none(section: Any) -> Any:
    """A section without the settings that are null."""
    return {k: v for k, v in section.items() if v is not None} if isinstance(section, dict) else section


def plain(section: Any) -> Any:
    """A section of a config as plain values."""
    return asdict(section) if is_dataclass(section) and not isinstance(section, type) else section


class RunFolder:
    """``<output_dir>/runs/<key>``: config.yaml, predictions.parquet, and result.json once it is finished."""

    def __init__(self, output_dir: str, key: str) -> None:
        self.key = key
        self.path = Path(output_dir) / "runs" / key[:16]

    @property
    def result_file(self) -> Path:
        """Where the record appears, whole, at the very end."""
        return self.path / "result.json"

    def result(self) -> dict[str, Any] | None:
        """The record, or None if the run is not finished.

        Raises:
            UserError: a record that is damaged or belongs to another run; it is named, never trusted.
        """
        try:
            record = json.loads(self.result_file.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise UserError(f"{self.result_file} is damaged; remove it to run again") from error
        whole = isinstance(record, dict) and record.get("key") == self.key and record.keys() >= REQUIRED
        if not whole:
            raise UserError(f"{self.result_file} is not this run's record; remove it to run again")
        if not is_whole(record):
            raise UserError(f"{self.result_file} is damaged; remove it to run again")
        return record

    def settled(self, retry_failed: bool, since: float) -> dict[str, Any] | None:
        """The record if the run need not be run again; with ``retry_failed`` a failure older than ``since`` must."""
        record = self.result()
        again = record is not None and record["status"] == "failed" and retry_failed
        return None if again and self.ended_at() < since else record

    def ended_at(self) -> float:
        """When the record was written, in seconds since the epoch; 0 if there is none."""
        try:
            return self.result_file.stat().st_mtime
        except OSError:
            return 0.0

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the run's lock; yields False if another process holds it. The system frees it when we die.

        Raises:
            StorageError: the folder can't be written to.
        """
        fresh = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.path / "lock", timeout=0)
            lock.acquire()
        except filelock.Timeout:
            yield False
            return
        except NotImplementedError as error:
            raise StorageError(
                f"{self.path}: this file system has no locks; set output_dir to one that does"
            ) from error
        except OSError as error:
            raise storage_error(error, self.path) from error
        try:
            yield True
        except UserError:
            if fresh:
                self._remove()  # nothing stays of a run that could not start
            raise
        except OSError as error:
            raise storage_error(error, self.path) if is_storage_error(error) else error from None
        finally:
            lock.release()

    def begin(self, resolved: dict[str, Any]) -> None:
        """Tidy up after a process that was killed, and note the config. Only under the lock."""
        remove_temporaries(self.path)
        text = yaml.safe_dump(resolved, sort_keys=False)
        replace_text(self.path / "config.yaml", text)

    def tidy(self, record: dict[str, Any]) -> None:
        """Remove the checkpoints of a finished run whose process was killed before it could."""
        keep = record["config"].get("checkpoint", {}).get("keep", False)
        if record["status"] == "finished" and not keep:
            shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def _remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty: other runs are there
            self.path.parent.rmdir()
            self.path.parent.parent.rmdir()

    def write_result(self, record: dict[str, Any]) -> None:
        """Write result.json atomically; numbers that are not finite become null."""
        write_json(self.result_file, finite({"format": FORMAT, "key": self.key, **record}))


def is_whole(record: dict[str, Any]) -> bool:
    """True if a record has, inside its parts, what its readers take for granted."""
    cost, scale, failure, best = (record[name] for name in ("cost", "scale", "failure", "best"))
    history: Any = record.get("history")
    if not all(isinstance(part, dict) for part in (cost, scale, record["config"])):
        return False
    if not all(isinstance(part, list) for part in (history, scale.get("differs"), record["warnings"])):
        return False
    timed = is_number(cost.get("seconds")) and (not history or is_number(cost.get("training_seconds")))
    named = failure is None or (isinstance(failure, dict) and "name" in failure)
    evaluated = all(is_evaluation(epoch) and "step" in epoch for epoch in history)
    return timed and named and evaluated and (best is None or is_best(best, record["config"]))


def is_best(best: Any, config: dict[str, Any]) -> bool:
    """True if the reported epoch has its metrics on the first dev split."""
    task = config.get("task")
    splits = task.get("dev_splits") if isinstance(task, dict) else None
    metrics = best.get(splits[0]) if is_evaluation(best) and isinstance(splits, list) and splits else None
    return isinstance(metrics, dict) and "constant_predictor" in metrics


def is_evaluation(epoch: Any) -> bool:
    """True for an epoch's entry: its number, its score (null where undefined), isotropies if they were measured."""
    if not isinstance(epoch, dict) or not {"epoch", "score"} <= epoch.keys():
        return False
    return (epoch["score"] is None or is_number(epoch["score"])) and isinstance(epoch.get("isotropy", {}), dict)


def is_number(value: Any) -> bool:
    """True for a number, which a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def finite(value: Any) -> Any:
    """A copy in which NaN and infinities are None, as JSON has no words for them."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def counted(number: int, what: str) -> str:
    """A number and what is counted, in the singular where there is one."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
