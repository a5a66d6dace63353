"""What the terminal shows: its width, and numbers in words."""

from rich.console import Console


def make_console() -> Console:
    """Standard output; a file or a pipe has no width of its own and gets one."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=140)


def format_count(number: int, what: str) -> str:
    """A number and what is counted, in the singular where there is one."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
