"""Read and write a run's record, ``result.json``."""

from pathlib import Path

import orjson

from isobench.common.errors import UserError
from isobench.common.files import replace_non_finite, write_json
from isobench.common.reading import RECORD_LIMIT, read_bounded
from isobench.runs.record import RECORD_FORMAT, RunRecord


def read_record_file(file: Path) -> RunRecord:
    """Read a ``result.json``.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file.
        UserError: the record is damaged, or another version's, in another format.
    """
    try:
        content = orjson.loads(read_bounded(file, RECORD_LIMIT))  # refuses NaN and infinities
        version = content["format"]
        if type(version) is int and version > RECORD_FORMAT:
            raise UserError(f"{file} has format {version} and this isobench reads {RECORD_FORMAT}: update isobench")
        if type(version) is int and 1 <= version < RECORD_FORMAT:
            raise UserError(f"{file} was written by an earlier version of isobench; remove it to run again")
        return RunRecord.model_validate(content)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise UserError(f"{file} is damaged; remove it to run again") from error


def write_record_file(file: Path, record: RunRecord) -> None:
    """Write a ``result.json`` atomically. Numbers that are not finite become null; fields never set are left out."""
    write_json(file, replace_non_finite(record.model_dump(exclude_unset=True)))
