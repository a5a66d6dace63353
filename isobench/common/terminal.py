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


BAR_MOVES = re.compile("\r|\n*(?:\x1b\\[A)+$")  # of tqdm: to the start of the line, or up to it


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


class PlainStream:
    """A stream that writes a question mark for every character that a terminal would obey, whoever prints it.

    Titles, names and warnings may come from a file that somebody else wrote. A `PlainConsole` and a progress bar
    command the terminal themselves: they write to ``rich_proxied_file``, the stream below, which rich looks for. What
    moves the cursor for a library's own bar passes on standard error (``shows_bars``).
    """

    def __init__(self, stream: Any, shows_bars: bool = False) -> None:
        self.rich_proxied_file, self.shows_bars = unwrap_stream(stream), shows_bars

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        moves = BAR_MOVES.match(text) if self.shows_bars else None
        start = moves[0] if moves else ""
        self.rich_proxied_file.write(start + replace_control_characters(text.removeprefix(start)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


def unwrap_stream(stream: Any) -> Any:
    """Return the stream below a `PlainStream`, for what commands the terminal; any other stream as it is."""
    return stream.rich_proxied_file if isinstance(stream, PlainStream) else stream


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
    """Print plainly, and go on when standard output or standard error can't be written any more, in this context.

    A sweep must not stop, and no run may fail, because of ``2>&1 | head -3``, a closed terminal or a full disk.
    """
    before = sys.stdout, sys.stderr
    sys.stdout = PlainStream(wrap_output(sys.stdout, sys.__stdout__))
    sys.stderr = PlainStream(wrap_output(sys.stderr, sys.__stderr__), shows_bars=True)
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
