"""Output for the terminal: lines on standard error, the console that tables are printed to, and counts in words."""

import os
import sys
from pathlib import Path

from rich.console import Console


def make_console() -> Console:
    """Make a console for standard output, 140 characters wide if that is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def format_count(number: int, noun: str) -> str:
    """Write a number with a noun, which gets an s unless the number is 1: ``1,000 runs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_if_read(line: str) -> None:
    """Print a line on standard error. If nobody reads it any more, this line and all later ones are dropped.

    That is so after ``2>&1 | head -3``, or if Ctrl-C has ended ``tee`` at the other end of a pipe.
    """
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
