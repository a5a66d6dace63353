"""Progress bars on standard error, drawn by tqdm, for terminals of any size and for those that don't know theirs."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO, TypeVar

from tqdm import tqdm
from tqdm.contrib import DummyTqdmFile

from isobench.common.interruption import raise_if_noted
from isobench.common.terminal import PlainStream, unwrap_stream

T = TypeVar("T")

WIDE = "{l_bar}{bar}| {n_fmt}/{total_fmt}, {labelled_loss}{rate_fmt}, {remaining} left"
NARROW = "{loss} {rate_fmt} {remaining} {percentage:.0f}%|{bar}| {desc}"  # the most important first: the rest is cut
WIDE_COLUMNS = 79  # WIDE needs as many with a run of ten thousand steps
MANY_ROWS = 100  # tqdm hides bars that have no row; ours are at most three


class ProgressBar(tqdm):
    """A progress bar in one line of a terminal, which disappears when it is closed.

    There is none if stderr is no terminal, as in a sweep's worker: the sweep itself shows the progress of all runs.
    tqdm by itself shows nothing on a pseudo-terminal without a size (0 columns, 0 rows). This bar takes 80 columns
    there. It measures the terminal before each drawing, so that it fits after a resizing too. ``start`` is the number
    of units that were done before.
    """

    monitor_interval = 0  # no thread of tqdm's: every update looks at the time

    def __init__(self, label: str, total: int | None, unit: str = "it", start: int = 0, items: Any = None) -> None:
        self.loss = ""  # shown if it is not empty
        stream = find_terminal()
        super().__init__(
            items, label, total, leave=False, file=stream, ncols=measure_columns(stream), nrows=MANY_ROWS,
            miniters=0, disable=None, unit=unit, initial=start, smoothing=0,
        )  # fmt: skip

    @property
    def format_dict(self) -> dict[str, Any]:
        """Return what tqdm draws the bar from, for the terminal's present width."""
        if self.disable:
            return dict(super().format_dict)
        self.ncols = measure_columns(self.fp)
        wide = self.ncols >= WIDE_COLUMNS
        if self.total is not None:
            self.bar_format = WIDE if wide else NARROW
        labelled = f"loss {self.loss}, " if self.loss else ""
        shown = {**super().format_dict, "loss": self.loss, "labelled_loss": labelled}
        return shown if wide else {**shown, "unit": ""}

    @staticmethod
    def status_printer(file: TextIO) -> Callable[[str], None]:
        """Return a function that replaces the line of the cursor by a text.

        tqdm's own blanks the whole old text, which wraps after the terminal has become narrower.
        """

        def replace_line(text: str) -> None:
            file.write(f"\r{text:{measure_columns(file)}}")
            file.flush()

        return replace_line


def measure_columns(stream: TextIO) -> int:
    """Return how many characters fit into a line of a terminal without reaching its edge, where some wrap."""
    columns = 0
    with contextlib.suppress(OSError, ValueError, AttributeError):
        columns = os.get_terminal_size(stream.fileno()).columns
    return max(1, (columns or shutil.get_terminal_size().columns) - 1)  # without a size: COLUMNS, else 80


def track_progress(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Iterate over items with a progress bar labelled ``what``; stop before an item if a signal was noted."""
    for item in ProgressBar(what, total, items=items):
        raise_if_noted()
        yield item


def find_terminal() -> Any:
    """Return standard error itself, without what ``print_above_bars`` and `PlainStream` put before it."""
    stream = unwrap_stream(sys.stderr)
    return unwrap_stream(stream._wrapped) if isinstance(stream, DummyTqdmFile) else stream


@contextlib.contextmanager
def print_above_bars() -> Iterator[None]:
    """A context in which all that is printed goes to stderr, in whole lines above the progress bars."""
    stream: Any = PlainStream(DummyTqdmFile(find_terminal()))
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield
