"""The sweeps that an output folder was made by, so that status and prune know what belongs to what."""

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from isobench.common.errors import UserError
from isobench.common.files import sha256_json, shorten_digest, write_json
from isobench.runs.layout import commands_folder

MULTIRUN_FLAGS = ("-m", "--multirun")


@dataclass(frozen=True)
class SweepCommand:
    """A sweep: its experiment, its arguments, and the folder that relative paths in them start from."""

    experiment: str | None
    arguments: list[str]
    folder: str


def save_command(output_dir: str, command: SweepCommand) -> Path | None:
    """Write ``commands/<hash>.json``, once; returns it if it is new. Where nothing can be written, nothing is."""
    file = commands_folder(output_dir) / f"{shorten_digest(sha256_json(asdict(command)))}.json"
    if file.exists() or not Path(output_dir).is_dir():
        return None
    with contextlib.suppress(OSError):
        write_json(file, asdict(command))
        return file
    return None


def remove_command(file: Path) -> None:
    """Undo ``remember`` for a command that came to nothing, folders included if nothing else is in them."""
    file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        file.parent.rmdir()
        file.parent.parent.rmdir()


def drop_launch_arguments(arguments: list[str]) -> list[str]:
    """A command's arguments without what says how and where its runs are launched."""
    passing = ("hydra/launcher", "hydra.launcher.", "dry_run=", "retry_failed=")
    return [a for a in arguments if a not in MULTIRUN_FLAGS and not a.lstrip("+").startswith(passing)]


def read_commands(output_dir: str) -> list[SweepCommand]:
    """All sweeps remembered, in the order of their files' times.

    Raises:
        UserError: a file that can't be read: what it held must not be taken for nothing.
    """
    files = sorted(commands_folder(output_dir).glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    found = []
    for file in files:
        try:
            command = SweepCommand(**json.loads(file.read_text()))
            if not isinstance(command.arguments, list):
                raise TypeError
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{file} is damaged; remove it if that sweep is history") from error
        found.append(command)
    return found
