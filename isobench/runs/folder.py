"""An output folder's layout, and a run's folder in it: its lock and its record.

No other module spells the names of these folders and files:

OUTPUT_DIR/runs/KEY/          one run, under the first digits of its key (`RunFolder`)
OUTPUT_DIR/reports/NAME/      the report or the analysis of an experiment
OUTPUT_DIR/jobs/              submitted jobs and their logs
OUTPUT_DIR/plans/             the runs of the sweeps that were started in this folder, and of imported bundles
OUTPUT_DIR/isobench-outputs   marks the folder as isobench's: only in such folders does prune remove anything
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from isobench.common.errors import UserError, refuse
from isobench.common.files import (
    is_storage_error,
    make_storage_error,
    read_bounded,
    read_file_time,
    replace_non_finite,
    require_writable,
    sha256_file,
    shorten_digest,
    write_text,
    write_whole,
)
from isobench.runs import bundled
from isobench.runs.record import (
    Predictions,
    RunRecord,
    format_record,
    name_remedy,
    parse_record,
    read_record_text,
)

MARKER_FILE = "isobench-outputs"  # in an output folder
RECORD_FILE = "result.json"  # in a run's folder, once the run has ended
PROGRESS_FILE = "progress.json"  # in a run's folder, while it runs
PREDICTIONS_FILE = "predictions.parquet"  # in a run's folder, beside the record
LOCK_FILE = "lock"  # in a run's folder
CHECKPOINTS_FOLDER = "checkpoints"  # in a run's folder, until the run has ended
REPORTS_FOLDER = "reports"  # in an output folder
ABOUT_FILE = "about.json"  # in an analysis's folder: what its files come from
REPORT_TABLES = ("runs", "epochs", "cells")  # of a report, each as Parquet and CSV in the same folder


def marker_file(output_dir: str | Path) -> Path:
    return Path(output_dir) / MARKER_FILE


def runs_folder(output_dir: str | Path) -> Path:
    return Path(output_dir) / "runs"


def run_folder_name(key: str) -> str:
    return shorten_digest(key)


def find_export_folder(export: str, key: str) -> Path:
    """Return the folder of a run's exported model; ``export``: the setting ``checkpoint.export``."""
    return Path(export).expanduser() / run_folder_name(key)


def is_run_folder_name(name: str) -> bool:
    return re.fullmatch("[0-9a-f]{16}", name) is not None


def reports_folder(output_dir: str | Path) -> Path:
    return Path(output_dir) / REPORTS_FOLDER


def report_folder(output_dir: str | Path, experiment: str | None) -> Path:
    """Return the folder with the report or the analysis of an experiment; ``runs`` for runs of none."""
    return reports_folder(output_dir) / (experiment or "runs")


def refuse_link(folder: Path) -> None:
    """Raise UserError if a folder of isobench's is a link: files elsewhere would be replaced or removed."""
    refuse((folder.is_symlink(), f"{folder} is a link, and isobench writes into no other folder: remove it"))


@contextmanager
def require_report_folder(folder: Path) -> Iterator[None]:
    """A context that makes a folder as `require_writable` does; UserError if it is a link in reports/."""
    if folder.parent.name == REPORTS_FOLDER:
        refuse_link(folder)
    with require_writable(folder):
        yield


def jobs_folder(output_dir: str | Path) -> Path:
    return Path(output_dir) / "jobs"


def plans_folder(output_dir: str | Path) -> Path:
    return Path(output_dir) / "plans"


CLOCK_TOLERANCE = 60.0  # seconds by which the clocks of a cluster's machines may differ
MARKER_TEXT = """\
isobench wrote the runs, reports, jobs and plans in this folder.
Its command prune removes runs only from folders that have a file of this name.
"""


def mark_output_folder(output_dir: str | Path) -> None:
    """Write the file that marks an output folder as isobench's, if it has none yet; the folder must exist."""
    marker = marker_file(output_dir)
    if not os.path.lexists(marker):
        write_text(marker, MARKER_TEXT, flush=False)


def remove_empty_output_folder(output_dir: str | Path) -> None:
    """Remove an output folder with nothing in it but its mark; OSError if there is more in it."""
    if list(Path(output_dir).iterdir()) == [marker_file(output_dir)]:
        marker_file(output_dir).unlink()
    Path(output_dir).rmdir()


class RunFolder:
    """``<output_dir>/runs/<key>``: predictions.parquet, and result.json once the run has ended.

    Of a bundle, which has no such folders, record and predictions are read from its tables.
    """

    def __init__(self, output_dir: str, key: str) -> None:
        self.key = key
        self.path = runs_folder(output_dir) / run_folder_name(key)
        self.bundle = Path(output_dir) if bundled.is_bundle(output_dir) else None

    @property
    def result_file(self) -> Path:
        """The record's file, which appears whole when the run has ended."""
        return self.bundle / bundled.RECORDS_FILE if self.bundle else self.path / RECORD_FILE

    @property
    def predictions_file(self) -> Path:
        return self.path / PREDICTIONS_FILE

    def read_text(self) -> bytes | None:
        """Read the record's text; None if the run has not ended, UserError if it can't be read."""
        if self.bundle:
            return bundled.read_records(self.bundle).get(self.key)
        return read_record_text(self.result_file)

    def read_predictions(self, columns: Sequence[str] | None = None) -> Any:
        """Read the rows of predictions as a ``pyarrow.Table``, or some columns; None if there are none.

        A damaged file may raise any error.
        """
        if self.bundle:
            rows = bundled.read_predictions(self.bundle).get(self.key)
            return rows if rows is None or columns is None else rows.select(columns)
        if not self.predictions_file.exists():
            return None
        return bundled.parse_table(read_bounded(self.predictions_file, bundled.TABLE_LIMIT), columns)

    def read_record(self) -> RunRecord | None:
        """Read the record; None if the run has not ended, UserError if it is damaged or another run's."""
        text = self.read_text()
        if text is None:
            return None
        record = parse_record(text, self.result_file)
        if record.key != self.key:
            raise UserError(f"{self.result_file} is not this run's record; {name_remedy(self.result_file)}")
        return record

    def read_final_record(self, retry_failed: bool, since: float) -> RunRecord | None:
        """Read the record; None if the run has to be run (again).

        With ``retry_failed`` that is so for a failure that was recorded before ``since``, in seconds since 1970.
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

        The system frees the lock of a process that dies. UserError if the folder is a link.
        """
        refuse_link(self.path)
        is_new = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            mark_output_folder(self.path.parent.parent)
            lock = filelock.FileLock(self.path / LOCK_FILE, timeout=0, fallback_to_soft=False)
            lock.acquire()
        except filelock.Timeout:
            yield False
            return
        except (OSError, NotImplementedError) as error:  # the second: a file system without locks
            raise make_storage_error(error, self.path) from error
        try:
            yield True
        except UserError:
            has_content = self.result_file.exists() or any((self.path / CHECKPOINTS_FOLDER).glob("*"))
            if is_new and not has_content:
                self._remove_folder()  # a run that could not start leaves nothing
            raise
        except OSError as error:
            raise make_storage_error(error, self.path) if is_storage_error(error) else error from None
        finally:
            lock.release()

    def is_locked(self) -> bool:
        with self.lock() as is_free:
            return not is_free

    def remove_leftovers(self, record: RunRecord) -> None:
        """Remove checkpoints, heartbeat and temporary files of a process killed just after it had written the record.

        In a folder that can't be written they stay.
        """
        if record.status != "finished" or self.path.is_symlink():
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
        """Write result.json atomically. Numbers that are not finite become null; fields never set are left out."""
        content = replace_non_finite(record.model_dump(exclude_unset=True))
        write_text(self.result_file, format_record(content).decode())


def write_predictions(file: Path, outputs: dict[str, dict[str, Any]]) -> Predictions:
    """Write a run's predictions or hypotheses as Parquet, a row an example, after the columns split and index.

    ``outputs``: dev split -> column -> values [N] or [N, c], a list of texts or an array. NaN becomes null, as the
    label of a test split that has none. Returns the file's name and sha256, for the record.
    """
    import pyarrow
    import pyarrow.parquet

    columns: dict[str, list[Any]] = {"split": [], "index": []}
    for split, output in outputs.items():
        count = len(next(iter(output.values())))
        columns["split"] += [split] * count
        columns["index"] += range(count)
        for name, values in output.items():
            if not isinstance(values, list):
                values = [None if value != value else value for value in values.astype(float).tolist()]
            columns.setdefault(name, []).extend(values)
    with write_whole(file) as temporary:
        pyarrow.parquet.write_table(pyarrow.table(columns), temporary)
    return Predictions(file=file.name, sha256=sha256_file(file))


COPY_OF = b"isobench.copy_of"  # in the metadata of a Parquet file: the sha256 of the file that has the same rows


def copy_predictions(file: Path, rows: Any, sha256: str) -> None:
    """Write a bundle's predictions of a run: the bytes of its own file, whose ``sha256`` the record has.

    Another version of pyarrow writes other bytes; the file then says of which it is a copy.
    """
    import pyarrow.parquet

    rows = bundled.simplify(rows)
    with write_whole(file) as temporary:
        pyarrow.parquet.write_table(rows, temporary)
        if sha256_file(temporary) != sha256:
            rows = rows.replace_schema_metadata({COPY_OF: sha256})
            pyarrow.parquet.write_table(rows, temporary, write_page_checksum=True)


def is_intact(file: Path, sha256: str) -> bool:
    """Return True if a file of predictions is the one whose sha256 a record has, or a copy."""
    import pyarrow
    import pyarrow.parquet

    if sha256_file(file) == sha256:
        return True
    try:
        table = pyarrow.parquet.read_table(file, page_checksum_verification=True)
        return bool((table.schema.metadata or {}).get(COPY_OF) == sha256.encode())
    except (OSError, pyarrow.ArrowException):
        return False
