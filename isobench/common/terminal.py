"""Output for the terminal: the console that tables are printed to, and counts in words."""

from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def make_console() -> Console:
    """Make a console for standard output, 140 characters wide if that is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def format_count(number: int, noun: str) -> str:
    """Write a number with a noun, which gets an s unless the number is 1: ``1,000 runs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def track_progress(items: Iterable[T], what: str, show: bool, total: int | None = None) -> Iterable[T]:
    """Iterate over items, with a progress bar on stderr that disappears at the end.

    Args:
        items: what to iterate over.
        what: the bar's label.
        show: False for no bar.
        total: number of items, where ``items`` has no length.
    """
    return track(items, what, total, console=Console(stderr=True), transient=True, disable=not show)
