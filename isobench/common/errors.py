"""The ways a run can end without a result."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can mend: shown as one line, exit code 2, no traceback."""


class StorageError(UserError):
    """Results can't be written: a sweep stops at once, for no other run could keep its result either."""


class RunFailure(Exception):
    """A run that broke in a way worth a name; it is recorded and counted, never dropped.

    Args:
        name: stable name of the failure, e.g. ``non_finite_loss``.
        message: one line for people.
        step: optimiser step at which it happened, if known.
    """

    def __init__(self, name: str, message: str, step: int | None = None) -> None:
        super().__init__(message)
        self.name, self.step = name, step


def suggest_nearest(word: str, choices: Iterable[str]) -> str:
    """A hint naming the closest valid words, or all of them when none is close."""
    options = sorted(choices)
    close = difflib.get_close_matches(word, options, n=3, cutoff=0.5)
    return f"did you mean {', '.join(close)}?" if close else f"choose one of: {', '.join(options)}"


def extract_first_line(error: BaseException) -> str:
    """The first line of what an error says, with the next if it ends in a colon; its kind if it says nothing."""
    first, *rest = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    return f"{first} {rest[0]}" if first.endswith(":") and rest else first
