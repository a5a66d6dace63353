"""Output for the terminal: the console that tables are printed to, lines on standard error, and counts in words."""

import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Characters that a terminal obeys instead of showing them, such as those that erase what it shows or turn the
# direction of writing, all but the tab and the line break; and halves of characters, which can't be printed.
CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class PlainConsole(Console):
    """A console that shows every text as it is: no markup such as ``[bold]``, no ``:emoji:``, no control characters.

    Names and messages may come from a file that somebody else wrote.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Called by rich for every text that it prints, in tables too."""
        return super().render_str(replace_control_characters(text), **options)


def make_console() -> PlainConsole:
    console = PlainConsole()
    return console if console.is_terminal else PlainConsole(width=140)


def make_table(title: str, labels: Iterable[str], numbers: Iterable[str], wrap_numbers: bool = False) -> Table:
    """Make an empty table: headings of left-aligned columns, which fold, then of right-aligned ones.

    ``wrap_numbers`` lets the right-aligned columns wrap too.
    """
    table = Table(title=title, title_justify="left", header_style="bold")
    for heading in labels:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=not wrap_numbers)
    return table


def replace_control_characters(text: str) -> str:
    """Write a question mark for every character that a terminal would obey."""
    return CONTROL_CHARACTERS.sub("?", text)


def print_plainly(text: str) -> None:
    """Print a text that may come from a file which somebody else wrote."""
    print(replace_control_characters(text))


def print_note(text: str) -> None:
    """Print a text as one line on standard error, also where a name in it has a line break."""
    print(f"isobench: {replace_control_characters(' '.join(text.split()))}", file=sys.stderr, flush=True)


@cache
def print_note_once(text: str) -> None:
    """Print a note the first time alone: a sweep, or ``isobench status --watch``, finds the same trouble again."""
    print_note(text)


def format_count(number: int, noun: str) -> str:
    """Write a number with a noun, which gets an s unless the number is 1: ``1,000 runs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def name_some(names: Sequence[str], separator: str = ", ", limit: int = 5) -> str:
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return separator.join(names[:limit]) + more


class OutlivingFile(io.FileIO):
    """Write to a pipe, terminal or file, and drop the output once nobody reads it or the disk is full."""

    has_reader = True

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO, errno.ENOSPC):
                raise
            if error.errno == errno.ENOSPC and self.has_reader and self.fileno() == 1:
                print_note("what is printed is lost: no space left on device (runs are not affected)")
            self.has_reader = False
            return memoryview(data).nbytes


@contextmanager
def outlive_readers() -> Iterator[None]:
    """Go on when standard output or standard error can't be written any more, as long as the context lasts.

    A sweep must not stop, and no run may fail, because of ``2>&1 | head -3``, a closed terminal or a full disk.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = wrap_output(sys.stdout, sys.__stdout__), wrap_output(sys.stderr, sys.__stderr__)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def wrap_output(stream: Any, process_stream: Any) -> Any:
    """Return a stream like ``stream`` that outlives its reader, or ``stream`` itself if it isn't the process's."""
    if stream is None or stream is not process_stream:
        return stream
    file = OutlivingFile(stream.fileno(), "w", closefd=False)
    with contextlib.suppress(OSError):
        stream.flush()
    is_immediate = stream.line_buffering or stream.write_through  # the latter with PYTHONUNBUFFERED=1
    return io.TextIOWrapper(io.BufferedWriter(file), stream.encoding, stream.errors, line_buffering=is_immediate)


def open_closed_streams() -> None:
    """Let a stream that was closed from the start lead nowhere; else the next file that is opened takes its place."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)  # the smallest free number, which is the stream's own
            os.set_inheritable(handle, True)
            setattr(sys, name, open(handle, "r" if name == "stdin" else "w"))  # noqa: PTH123, SIM115


def is_output_read() -> bool:
    """Return False if standard output was found to be closed at its other end, or its disk to be full."""
    file = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return bool(getattr(file, "has_reader", True))
