"""Read the runs of an output folder that have ended, where data and weights need not be at hand."""

from pathlib import Path

from isobench.common.errors import UserError
from isobench.runs.folder import RunFolder
from isobench.runs.identity import Identity
from isobench.runs.layout import CONFIG_FILE, RECORD_FILE, run_folder_name
from isobench.runs.listing import list_run_folders, parse_config, read_config_text
from isobench.runs.record_file import read_record_file
from isobench.runs.row import Row


def read_ended_rows(output_dir: str) -> list[Row]:
    """Read config and record of every run in an output folder that has ended.

    Raises:
        UserError: a record or config is damaged.
    """
    rows = (read_ended_row(output_dir, path) for path in list_run_folders(output_dir))
    return [row for row in rows if row is not None]


def read_ended_row(output_dir: str, path: Path) -> Row | None:
    """Read config and record of a run; None if it has not ended.

    The row's identity has the key and the fingerprints of the record. They are not compared with data and weights.

    Args:
        output_dir: the output folder.
        path: the run's folder in it.

    Raises:
        UserError: the record or the config is damaged, or another run's.
    """
    try:
        record = read_record_file(path / RECORD_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if run_folder_name(record.key) != path.name:
        raise UserError(f"{path / RECORD_FILE} is not this run's record; remove it to run again")
    try:
        cfg = parse_config(read_config_text(path))
    except Exception as error:  # it may be damaged in many ways
        raise UserError(f"{path / CONFIG_FILE} is damaged or was changed: remove the folder to run again") from error
    identity = Identity(record.key, record.data.fingerprint, record.encoder.fingerprint)
    return Row(cfg, RunFolder(output_dir, record.key), record, "done", identity=identity)
