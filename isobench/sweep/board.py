"""Show a sweep's running runs in the terminal, one line each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from isobench.common.terminal import PlainConsole, print_if_read, replace_control_characters
from isobench.config.schema import Config
from isobench.runs.record import Beat
from isobench.runs.run import format_run_name
from isobench.runs.state import read_heartbeat
from isobench.sweep.forecast import format_duration

HEADINGS = ("run", "epoch", "step", "loss", "speed", "time left")
OTHERS_WIDTH = 48  # characters of all columns but the first
NARROW = 70  # characters; a terminal with fewer shows the first and the last column only
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
        self.shared_words = frozenset.intersection(*(frozenset(_split_name(cfg)) for cfg in configs))
        self.console = console or PlainConsole(stderr=True, highlight=False)
        self.is_moving = self.console.is_terminal and not self.console.is_dumb_terminal
        self.live = Live(console=self.console, auto_refresh=False, transient=True, redirect_stdout=False)
        self.begun: set[tuple[Path, int | None]] = set()  # folders and processes of the runs that began to train

    def __enter__(self) -> Self:
        if self.is_moving:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._survive_closed_terminal():
            self.live.stop()

    def print(self, line: str) -> None:
        """Print a line above the moving ones."""
        if self.is_moving:
            with self._survive_closed_terminal():
                self.console.print(Text(replace_control_characters(line)), soft_wrap=True)
        else:
            print_if_read(line)

    def show(self, running: Sequence[RunningRun]) -> None:
        """Renew the lines of the running runs."""
        if not self.is_moving:
            return
        width = self.console.width
        shown = slice(None) if width >= NARROW else slice(None, None, len(HEADINGS) - 1)
        table = Table(*(Column(name, no_wrap=True) for name in HEADINGS[shown]), box=None, padding=(0, 2, 0, 0))
        table.columns[0].max_width = width - (OTHERS_WIDTH if width >= NARROW else OTHERS_WIDTH // 3)
        for cfg, folder, pid in running:
            words = _split_name(cfg)
            own = " ".join([word for word in words if word not in self.shared_words] or words)
            table.add_row(*(own, *self._describe(cfg, folder, pid))[shown])
        with self._survive_closed_terminal():
            self.live.update(Group(table, f"{self.ended} of {self.total} runs have ended"), refresh=True)

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


def _split_name(cfg: Config) -> list[str]:
    """Split a run's name into words; its seed is one word."""
    return replace_control_characters(format_run_name(cfg)).replace(" seed ", " seed=").split()


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
