"""Progress bars on standard error, drawn by tqdm, for terminals of any size and for those that don't know theirs."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, TypeVar

from tqdm import tqdm
from tqdm.contrib import DummyTqdmFile

from isobench.common.interruption import raise_if_noted
from isobench.common.terminal import PlainStream, unwrap_stream

T = TypeVar("T")

# The most important first: a narrow terminal cuts the rest.
FORM = "{n_fmt}/{total_fmt}{postfix}, {rate_fmt}, {remaining} left, {desc} |{bar}|"
MANY_ROWS = 100  # tqdm hides bars that have no row; ours are at most three


class ProgressBar(tqdm):
    """A progress bar in one line of a terminal, which disappears when it is closed.

    There is none if stderr is no terminal, as in a sweep's worker: the sweep itself shows the progress of all runs.
    tqdm by itself shows nothing on a pseudo-terminal without a size (0 columns, 0 rows). This bar takes 80 columns
    there, and measures the terminal before each drawing. ``start`` is the number of units that were done before.
    """

    monitor_interval = 0  # no thread of tqdm's: every update looks at the time

    def __init__(self, label: str, total: int | None, unit: str = "it", start: int = 0, items: Any = None) -> None:
        stream = find_terminal()
        super().__init__(
            items, label, total, leave=False, file=stream, ncols=measure_columns(stream), nrows=MANY_ROWS,
            miniters=0, disable=None, unit=unit, initial=start, smoothing=0,
        )  # fmt: skip
        self.bar_format = FORM if self.total else None
        self.dynamic_ncols = lambda stream: (measure_columns(stream), MANY_ROWS)


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
