"""The errors that end a run without a result, and how their messages are written."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake or a circumstance that the user can correct: shown as one line without traceback, exit code 2."""


class NoGridError(UserError):
    """An experiment has no grid for the sweep's scale."""


class StorageError(UserError):
    """Results or the cache can't be written. A sweep stops at once, since its other runs would fail the same way."""


class RunFailure(Exception):
    """A known way for a run to fail, such as a loss of NaN. The run is recorded as failed and counted, not dropped.

    Args:
        name: stable name of the failure, such as ``non_finite_loss``.
        message: one line that explains it.
        step: optimiser step at which it happened, None if unknown.
    """

    def __init__(self, name: str, message: str, step: int | None = None) -> None:
        super().__init__(message)
        self.name, self.step = name, step


def suggest_nearest(word: str, choices: Iterable[str]) -> str:
    """Write a hint that names the valid choices closest to a word, or all choices if none is close."""
    names = sorted(choices)
    if not names:
        return "there is none to choose"
    closest = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    return f"did you mean {', '.join(closest)}?" if closest else f"choose one of: {', '.join(names)}"


def extract_first_line(error: BaseException) -> str:
    """Return the first line of an error's message, with the next if it ends in a colon; its class if it is empty."""
    first, *rest = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    return f"{first} {rest[0]}" if first.endswith(":") and rest else first
