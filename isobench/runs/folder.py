"""A run's folder: its lock, its config and its record."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import yaml

from isobench.common.errors import StorageError, UserError
from isobench.common.files import is_storage_error, make_storage_error, remove_temporaries, replace_text, write_json
from isobench.runs.layout import CHECKPOINTS_FOLDER, CONFIG_FILE, LOCK_FILE, RECORD_FILE, run_folder_name, runs_folder
from isobench.runs.record import RECORD_FIELDS, RECORD_FORMAT, is_valid_record, replace_non_finite


class RunFolder:
    """``<output_dir>/runs/<key>``: config.yaml, predictions.parquet, and result.json once it is finished."""

    def __init__(self, output_dir: str, key: str) -> None:
        self.key = key
        self.path = runs_folder(output_dir) / run_folder_name(key)

    @property
    def result_file(self) -> Path:
        """Where the record appears, whole, at the very end."""
        return self.path / RECORD_FILE

    def read_record(self) -> dict[str, Any] | None:
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
        whole = isinstance(record, dict) and record.get("key") == self.key and record.keys() >= RECORD_FIELDS
        if not whole:
            raise UserError(f"{self.result_file} is not this run's record; remove it to run again")
        if not is_valid_record(record):
            raise UserError(f"{self.result_file} is damaged; remove it to run again")
        return record

    def read_final_record(self, retry_failed: bool, since: float) -> dict[str, Any] | None:
        """The record if the run need not be run again; with ``retry_failed`` a failure older than ``since`` must."""
        record = self.read_record()
        again = record is not None and record["status"] == "failed" and retry_failed
        return None if again and self.read_end_time() < since else record

    def read_end_time(self) -> float:
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
            lock = filelock.FileLock(self.path / LOCK_FILE, timeout=0)
            lock.acquire()
        except filelock.Timeout:
            yield False
            return
        except NotImplementedError as error:
            raise StorageError(
                f"{self.path}: this file system has no locks; set output_dir to one that does"
            ) from error
        except OSError as error:
            raise make_storage_error(error, self.path) from error
        try:
            yield True
        except UserError:
            if fresh:
                self._remove_folder()  # nothing stays of a run that could not start
            raise
        except OSError as error:
            raise make_storage_error(error, self.path) if is_storage_error(error) else error from None
        finally:
            lock.release()

    def write_config(self, resolved: dict[str, Any]) -> None:
        """Tidy up after a process that was killed, and note the config. Only under the lock."""
        remove_temporaries(self.path)
        text = yaml.safe_dump(resolved, sort_keys=False)
        replace_text(self.path / CONFIG_FILE, text)

    def remove_old_checkpoints(self, record: dict[str, Any]) -> None:
        """Remove the checkpoints of a finished run whose process was killed before it could."""
        keep = record["config"].get("checkpoint", {}).get("keep", False)
        if record["status"] == "finished" and not keep:
            shutil.rmtree(self.path / CHECKPOINTS_FOLDER, ignore_errors=True)

    def _remove_folder(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty: other runs are there
            self.path.parent.rmdir()
            self.path.parent.parent.rmdir()

    def write_record(self, record: dict[str, Any]) -> None:
        """Write result.json atomically; numbers that are not finite become null."""
        write_json(self.result_file, replace_non_finite({"format": RECORD_FORMAT, "key": self.key, **record}))
