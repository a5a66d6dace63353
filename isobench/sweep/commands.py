"""The commands that made an output folder's runs, so that status and prune know what belongs to what."""

import contextlib
import json
from pathlib import Path
from typing import Any

from isobench.files import write_json

FLAGS = ("-m", "--multirun")


def remember(output_dir: str, arguments: list[str], experiment: str | None) -> None:
    """Add a command to ``commands.json``, once. A folder that can't be written to has nothing to remember."""
    command = {"experiment": experiment, "arguments": lasting(arguments)}
    known = recall(output_dir)
    if command not in known and Path(output_dir).is_dir():
        with contextlib.suppress(OSError):
            write_json(_file(output_dir), [*known, command])


def lasting(arguments: list[str]) -> list[str]:
    """A command's arguments without what says how and where its runs are launched."""
    passing = ("hydra/launcher", "hydra.launcher.", "dry_run=", "retry_failed=")
    return [a for a in arguments if a not in FLAGS and not a.lstrip("+").startswith(passing)]


def forget(output_dir: str) -> None:
    """Undo ``remember`` in a folder made for a command that came to nothing."""
    _file(output_dir).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # something else is in it
        Path(output_dir).rmdir()


def recall(output_dir: str) -> list[dict[str, Any]]:
    """All commands remembered, oldest first."""
    try:
        known = json.loads(_file(output_dir).read_text())
    except (OSError, ValueError):
        return []
    return known if isinstance(known, list) else []


def _file(output_dir: str) -> Path:
    return Path(output_dir) / "commands.json"
