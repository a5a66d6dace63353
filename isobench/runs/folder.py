"""A run's folder: its lock, its config and its record."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import yaml

from isobench.common.checksums import add_text_checksum
from isobench.common.errors import StorageError, UserError
from isobench.common.files import (
    is_storage_error,
    make_storage_error,
    read_file_time,
    remove_temporaries,
    write_text,
)
from isobench.runs.layout import (
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    LOCK_FILE,
    PROGRESS_FILE,
    RECORD_FILE,
    marker_file,
    run_folder_name,
    runs_folder,
)
from isobench.runs.record import RunRecord
from isobench.runs.record_file import read_record_file, write_record_file

CLOCK_TOLERANCE = 60.0  # seconds by which the clocks of a cluster's machines may differ
MARKER_TEXT = """\
isobench wrote the runs, reports, jobs and commands in this folder.
Its command prune removes runs only from folders that have a file of this name.
"""


def mark_output_folder(output_dir: str | Path) -> None:
    """Write the file that marks an output folder as isobench's, if it has none yet; the folder must exist.

    Raises:
        OSError: the folder can't be written.
    """
    marker = marker_file(output_dir)
    if not os.path.lexists(marker):
        write_text(marker, MARKER_TEXT, flush=False)


def remove_empty_output_folder(output_dir: str | Path) -> None:
    """Remove an output folder with nothing in it but its mark.

    Raises:
        OSError: there is something else in it, or it can't be removed.
    """
    if list(Path(output_dir).iterdir()) == [marker_file(output_dir)]:
        marker_file(output_dir).unlink()
    Path(output_dir).rmdir()


class RunFolder:
    """``<output_dir>/runs/<key>``: config.yaml, predictions.parquet, and result.json once it is finished."""

    def __init__(self, output_dir: str, key: str) -> None:
        self.key = key
        self.path = runs_folder(output_dir) / run_folder_name(key)

    @property
    def result_file(self) -> Path:
        """The record's file, which appears whole when the run has ended."""
        return self.path / RECORD_FILE

    def read_record(self) -> RunRecord | None:
        """Read the record; None if the run has not ended.

        Raises:
            UserError: the record is damaged, of another format, or another run's. The message names the file.
        """
        try:
            record = read_record_file(self.result_file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if record.key != self.key:
            raise UserError(f"{self.result_file} is not this run's record; remove it to run again")
        return record

    def read_final_record(self, retry_failed: bool, since: float) -> RunRecord | None:
        """Read the record; None if the run has to be run (again).

        With ``retry_failed`` that is so for a failure that was recorded before ``since``, in seconds since 1970.

        Raises:
            UserError: as `read_record`.
        """
        record = self.read_record()
        again = record is not None and record.status == "failed" and retry_failed
        return None if again and self.read_end_time() < since else record

    def read_end_time(self) -> float:
        """Return when the record was written, in seconds since 1970; 0 if there is none.

        It is 0 too for a time in the future by more than CLOCK_TOLERANCE. A clock was wrong then, and the record must
        not count as newer than every command and every job.
        """
        moment = read_file_time(self.result_file)
        return moment if moment <= time.time() + CLOCK_TOLERANCE else 0.0

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the run's lock while the block runs, and yield True; yield False if another process holds it.

        The system frees the lock of a process that dies.

        Raises:
            StorageError: the folder can't be written to, or its file system has no locks.
        """
        fresh = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            mark_output_folder(self.path.parent.parent)
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
            if fresh and not any((self.path / CHECKPOINTS_FOLDER).glob("*")):
                self._remove_folder()  # a run that could not start leaves nothing
            raise
        except OSError as error:
            raise make_storage_error(error, self.path) if is_storage_error(error) else error from None
        finally:
            lock.release()

    def write_config(self, resolved: dict[str, Any]) -> None:
        """Remove what a killed process left half-written, and write config.yaml. Call it under the lock only."""
        remove_temporaries(self.path)
        text = yaml.safe_dump(resolved, sort_keys=False)
        write_text(self.path / CONFIG_FILE, add_text_checksum(text, self.path.name), flush=False)

    def remove_leftovers(self, record: RunRecord) -> None:
        """Remove what remains if a process was killed just after it had written the record of a finished run.

        This means checkpoints, the heartbeat, and temporary files. In a folder that can't be written they stay.
        """
        if record.status != "finished":
            return
        shutil.rmtree(self.path / CHECKPOINTS_FOLDER, ignore_errors=True)
        with contextlib.suppress(OSError):
            for file in list(self.path.iterdir()):
                if file.name == PROGRESS_FILE or file.name.endswith(".tmp"):
                    file.unlink(missing_ok=True)

    def _remove_folder(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # other runs are in there
            self.path.parent.rmdir()
            remove_empty_output_folder(self.path.parent.parent)

    def write_record(self, record: RunRecord) -> None:
        """Write result.json atomically; numbers that are not finite become null."""
        write_record_file(self.result_file, record)
