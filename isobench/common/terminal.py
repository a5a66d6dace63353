"""Output for the terminal: the console that tables are printed to, and counts in words."""

from rich.console import Console


def make_console() -> Console:
    """Make a console for standard output, 140 characters wide if that is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def format_count(number: int, noun: str) -> str:
    """Write a number with a noun, which gets an s unless the number is 1: ``1,000 runs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
