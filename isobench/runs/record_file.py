"""Read and write a run's record, ``result.json``."""

import hashlib
import json
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import replace_non_finite, write_atomic
from isobench.common.reading import RECORD_LIMIT, read_bounded
from isobench.runs.record import RECORD_FORMAT, RunRecord
from isobench.runs.record_check import check_epochs

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
        raise make_damage_error(file, error) from error
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
        require_record_checksum(text, required=version != OLDEST_FORMAT)
        record = RunRecord.model_validate(content)
        check_epochs(record)
        return record
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise make_damage_error(file, error) from error


def make_damage_error(file: Path, error: Exception) -> UserError:
    """Make the error for a record that can't be read."""
    return UserError(f"{file} is damaged; remove it to run again ({describe_damage(error)})")


def describe_damage(error: Exception) -> str:
    """Say in a few words what is wrong with a record that can't be read."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"it lacks {error}" if isinstance(error, KeyError) else extract_first_line(error)


def require_record_checksum(text: bytes, required: bool) -> None:
    """Compare the checksum at the end of a record's text with the text before it.

    Args:
        text: the whole file.
        required: refuse a text without a checksum.

    Raises:
        ValueError: they differ, or there is none.
    """
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
    write_atomic(file, lambda temporary: temporary.write_text(text))
