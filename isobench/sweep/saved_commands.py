"""Remember the sweeps that were started in an output folder, for status, report and prune to plan them again."""

import contextlib
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from isobench.common.errors import UserError
from isobench.common.files import sha256_json, shorten_digest, write_json
from isobench.common.reading import read_bounded
from isobench.config.command_line import MULTIRUN_FLAGS
from isobench.runs.folder import mark_output_folder, remove_empty_output_folder
from isobench.runs.layout import commands_folder

SEARCH_PATH = "hydra.searchpath"


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid", defer_build=True))
class SweepCommand:
    """A sweep's command: its experiment, its arguments, and the working folder that relative paths start from.

    Raises:
        ValueError: a value is of the wrong type.
    """

    experiment: str | None
    arguments: list[str]
    folder: str


def save_command(output_dir: str, command: SweepCommand) -> Path | None:
    """Write ``commands/<hash>.json`` and return it; None if it is there already, or can't be written.

    The output folder is marked as isobench's, if it exists.
    """
    file = locate_command(output_dir, command)
    if not Path(output_dir).is_dir():
        return None
    with contextlib.suppress(OSError):
        mark_output_folder(output_dir)
        if file.exists():
            return None
        write_json(file, asdict(command))
        return file
    return None


def locate_command(output_dir: str, command: SweepCommand) -> Path:
    """Return the path of a sweep's file, whose name begins with the first digits of the hash of its content."""
    return commands_folder(output_dir) / f"{shorten_digest(sha256_json(asdict(command)))}.json"


def remove_command(file: Path) -> None:
    """Remove the file of a sweep that started nothing, and its folders where these are empty."""
    file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        file.parent.rmdir()
        remove_empty_output_folder(file.parent.parent)


def drop_launch_arguments(arguments: list[str]) -> list[str]:
    """Drop the arguments that only say how, where and whether runs are launched, not which runs there are."""
    prefixes = ("hydra/", "hydra.", "dry_run=", "retry_failed=", "report=")
    return [
        a
        for a in arguments
        if a not in MULTIRUN_FLAGS
        and (a.startswith(SEARCH_PATH) or not a.lstrip("+").startswith(prefixes))  # it has groups' options
    ]


def read_commands(output_dir: str) -> list[SweepCommand]:
    """Read all sweeps of an output folder, in the order in which they were first started.

    Raises:
        UserError: a file is damaged: the runs of its sweep must not be taken for runs that nothing asked for.
    """
    files = sorted(commands_folder(output_dir).glob("*.json"), key=lambda file: file.lstat().st_mtime_ns)
    commands = []
    for file in files:
        try:
            command = SweepCommand(**orjson.loads(read_bounded(file)))
            if locate_command(output_dir, command) != file:
                raise ValueError("it was changed")
            commands.append(command)
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{file} is damaged; remove it if you no longer need that sweep") from error
    return commands
