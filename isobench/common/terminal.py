"""What the terminal shows: its width, and numbers in words."""

from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def make_console() -> Console:
    """Standard output; a file or a pipe has no width of its own and gets one."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=140)


def format_count(number: int, what: str) -> str:
    """A number and what is counted, in the singular where there is one."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def track_progress(items: Iterable[T], what: str, show: bool, total: int | None = None) -> Iterable[T]:
    """Iterate over items, with a progress bar on stderr that disappears at the end.

    Args:
        items: what to iterate over.
        what: the bar's label.
        show: False for no bar.
        total: number of items, where ``items`` has no length.
    """
    return track(items, what, total, console=Console(stderr=True), transient=True, disable=not show)
