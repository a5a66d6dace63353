"""The errors that end a run without a result, and how their messages are written."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from typing import Any


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
    """Return the first line of an error's message, with the next if it ends in a colon; its class if it is empty.

    Those of YAML and pydantic say nothing in the first line, so that the whole message becomes one line.
    """
    if type(error).__module__.partition(".")[0] in ("yaml", "pydantic_core"):
        return " ".join(str(error).split()).partition(" [type=")[0]
    if isinstance(error, KeyError):
        return f"there is no {error}"
    first, *rest = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    return f"{first} {rest[0]}" if first.endswith(":") and rest else first


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """A context for code that fails in its library's words: its error becomes a UserError that says what was done.

    A class or a module of the user's that calls sys.exit would end isobench as if all were well.
    """
    try:
        yield
    except (UserError, RunFailure, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{what}: {extract_first_line(error)}") from error


def refuse(*rules: tuple[Any, str], error: type[Exception] = UserError) -> None:
    """Raise an error with the message of the first rule that is broken; each is (whether it is broken, message)."""
    for is_broken, message in rules:
        if is_broken:
            raise error(message)
