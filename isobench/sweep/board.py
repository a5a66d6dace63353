"""Show a sweep's running runs in the terminal, one line each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from isobench.common.terminal import PlainConsole, print_if_read, replace_control_characters
from isobench.config.schema import Config
from isobench.runs.heartbeat import read_heartbeat
from isobench.runs.record import Beat
from isobench.runs.row import format_run_name
from isobench.sweep.forecast import format_duration

HEADINGS = ("run", "epoch", "step", "loss", "speed", "time left")
OMITTED_FIRST = ("speed", "loss", "epoch", "step")  # columns that a narrow terminal does not show
GAP = "  "  # between two columns
RunningRun = tuple[Config, Path, int | None]  # a run's config, its folder, and the process that carries it out


class Board:
    """A context that keeps a line for each running run at the foot of the terminal, and prints others above them.

    Where standard error is no terminal, there are no such lines, and only what is printed appears. What this process
    writes to standard error meanwhile appears above the lines; its standard output is left alone.

    Args:
        configs: of the runs that there are to do. What their names share is left out of the lines.
        console: for standard error; tests pass another one.
    """

    def __init__(self, configs: Sequence[Config], console: Console | None = None) -> None:
        self.total, self.ended = len(configs), 0
        self.shared_words = frozenset.intersection(*(frozenset(split_name(cfg)) for cfg in configs))
        self.console = console or PlainConsole(stderr=True, highlight=False)
        self.is_moving = self.console.is_terminal and not self.console.is_dumb_terminal
        self.live = (
            Live(console=self.console, auto_refresh=False, transient=True, redirect_stdout=False)
            if self.is_moving
            else None
        )
        self.begun: set[tuple[Path, int | None]] = set()  # folders and processes of the runs that began to train

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            with self._survive_closed_terminal():
                self.live.stop()

    def print(self, line: str) -> None:
        """Print a line above the moving ones."""
        if self.live:
            with self._survive_closed_terminal():
                self.console.print(Text(replace_control_characters(line)), soft_wrap=True)
        else:
            print_if_read(line)

    def count_ended(self, count: int) -> None:
        """Note how many runs have ended."""
        self.ended = count

    def show(self, running: Sequence[RunningRun]) -> None:
        """Renew the lines of the running runs."""
        if self.live is None:
            return
        rows = [(self._shorten_name(cfg), *self._describe(cfg, folder, pid)) for cfg, folder, pid in running]
        lines = [*lay_out([HEADINGS, *rows], self.console.width), f"{self.ended} of {self.total} runs have ended"]
        with self._survive_closed_terminal():
            self.live.update(Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines)), refresh=True)

    def _shorten_name(self, cfg: Config) -> str:
        """Return a run's name without the words that all names have; the whole name if nothing is left."""
        words = split_name(cfg)
        return " ".join([word for word in words if word not in self.shared_words] or words)

    @contextmanager
    def _survive_closed_terminal(self) -> Iterator[None]:
        """A context that passes over errors of writing: the runs go on after their terminal was closed."""
        try:
            yield
        except OSError:
            self.console.quiet = True

    def _describe(self, cfg: Config, folder: Path, pid: int | None) -> tuple[str, ...]:
        """Describe how far a run is, in the cells after its name."""
        beat = read_heartbeat(folder)
        if beat is None or beat.pid != pid:  # the file of another attempt, or removed when the run has ended
            return "", "", "", "", "ending" if (folder, pid) in self.begun else "starting"
        if beat.state != "starting":
            self.begun.add((folder, pid))
        return describe_progress(beat, cfg.optimization.epochs)


def split_name(cfg: Config) -> list[str]:
    """Split a run's name into words; its seed is one word."""
    return replace_control_characters(format_run_name(cfg)).replace(" seed ", " seed=").split()


def lay_out(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """Lay out a table in lines of at most ``width`` characters.

    Columns that don't fit are left out, in the order of ``OMITTED_FIRST``. Then the first column, the name, is cut.

    Args:
        rows: the cells of each row; the first row has the headings.
        width: of the terminal.
    """
    widths = {heading: max(map(len, cells)) for heading, *cells in zip(rows[0], *rows, strict=True)}
    for heading in OMITTED_FIRST:
        if sum(widths.values()) + len(GAP) * (len(widths) - 1) > width:
            del widths[heading]
    name, *others = widths
    widths[name] = min(widths[name], max(1, width - sum(widths[heading] + len(GAP) for heading in others)))
    lines = []
    for row in rows:
        cells = dict(zip(rows[0], row, strict=True))
        if len(cells[name]) > widths[name]:
            cells[name] = cells[name][: widths[name] - 1] + "…"
        lines.append(GAP.join(cells[heading].ljust(size) for heading, size in widths.items()).rstrip())
    return lines


def describe_progress(beat: Beat, epochs: int) -> tuple[str, str, str, str, str]:
    """Describe a run's progress in five cells: epoch, step, loss, speed, and the time left or what else it does.

    Args:
        beat: the run's newest heartbeat.
        epochs: of the whole run.
    """
    if beat.step is None or not beat.steps:
        return "", "", "", "", beat.state
    epoch = f"{min(epochs, 1 + beat.step * epochs // beat.steps)}/{epochs}"
    step = f"{beat.step}/{beat.steps}"
    if beat.state == "starting":  # from a checkpoint
        return epoch, step, "", "", beat.state
    loss = "" if beat.loss is None else format_briefly(beat.loss, 3)
    speed = f"{format_briefly(beat.speed, 2)}/s" if beat.speed else ""
    left = format_duration((beat.steps - beat.step) / beat.speed) if beat.speed else ""
    return epoch, step, loss, speed, beat.state if beat.state == "evaluating" else left


def format_briefly(value: float, digits: int) -> str:
    """Write a number with so many significant digits; in full, without an exponent, from 10^digits to a million."""
    whole = 10**digits - 0.5 <= abs(value) < 1e6
    return f"{value:.0f}" if whole else f"{value:.{digits}g}"
