"""Show a sweep's running runs in the terminal, one line each."""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from isobench.config.schema import Config
from isobench.runs.heartbeat import read_heartbeat
from isobench.runs.record import Beat
from isobench.runs.row import format_run_name
from isobench.sweep.forecast import format_duration

COLUMNS = 7  # name, epoch, step, loss, speed, time left, evaluation
OMITTED_FIRST = (4, 3, 1)  # cells that narrow terminals don't show: speed, loss, epoch
RunningRun = tuple[Config, Path, int | None]  # a run's config, its folder, and the process that carries it out


class Board:
    """A context that keeps a line for each running run at the foot of the terminal, and prints others above them.

    Where standard error is no terminal, there are no such lines, and only what is printed appears.

    Args:
        total: how many runs there are to do.
        console: for standard error; tests pass another one.
    """

    def __init__(self, total: int, console: Console | None = None) -> None:
        self.total, self.ended = total, 0
        self.console = console or Console(stderr=True, highlight=False)
        self.is_moving = self.console.is_terminal and not self.console.is_dumb_terminal
        self.live = Live(console=self.console, auto_refresh=False, transient=True) if self.is_moving else None
        self.begun: set[tuple[Path, int | None]] = set()  # folders and processes of the runs that began to train

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def print(self, line: str) -> None:
        """Print a line above the moving ones."""
        if self.live:
            self.console.print(Text(line), soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def count_ended(self, count: int) -> None:
        """Note how many runs have ended."""
        self.ended = count

    def show(self, running: Sequence[RunningRun]) -> None:
        """Renew the lines of the running runs."""
        if self.live is None:
            return
        table = Table.grid(*(Column(no_wrap=True) for _ in range(COLUMNS)), padding=(0, 2))
        lines = [[format_run_name(cfg), *self._describe(cfg, folder, pid)] for cfg, folder, pid in running]
        for cells in fit_cells(lines, self.console.width):
            table.add_row(*cells)
        self.live.update(Group(table, Text(f"{self.ended} of {self.total} runs have ended")), refresh=True)

    def _describe(self, cfg: Config, folder: Path, pid: int | None) -> list[str]:
        """Describe how far a run is: its epoch, its step, its loss, its speed and the time that it has left."""
        beat = read_heartbeat(folder)
        if beat is None or beat.pid != pid:  # the file of another attempt, or removed when the run has ended
            return ["ending" if (folder, pid) in self.begun else "starting"]
        if beat.state != "starting":
            self.begun.add((folder, pid))
        return describe_progress(beat, cfg.optimization.epochs)


def fit_cells(lines: list[list[str]], width: int) -> list[list[str]]:
    """Leave out cells until the lines fit into a terminal, so that it does not cut the runs' names.

    Args:
        lines: of each run its name and the cells of `describe_progress`.
        width: of the terminal, in characters.
    """
    for column in OMITTED_FIRST:
        widths = (max(map(len, cells)) + 2 for cells in itertools.zip_longest(*lines, fillvalue=""))
        if sum(widths) - 2 <= width:
            break
        lines = [cells[:column] + cells[column + 1 :] if len(cells) > 3 else cells for cells in lines]
    return lines


def describe_progress(beat: Beat, epochs: int) -> list[str]:
    """Describe a run's progress in cells of a table: epoch, step, loss, speed, time left, and what it does.

    Args:
        beat: the run's newest heartbeat.
        epochs: of the whole run.
    """
    if beat.step is None or not beat.steps:
        return [beat.state]
    if beat.state == "starting":
        return [f"starting from step {beat.step}"]
    epoch = min(epochs, 1 + beat.step * epochs // beat.steps)
    cells = [f"epoch {epoch} of {epochs}", f"step {beat.step} of {beat.steps}"]
    cells.append("" if beat.loss is None else f"loss {beat.loss:.3g}")
    if beat.speed:
        cells += [f"{beat.speed:.2g} steps/s", f"{format_duration((beat.steps - beat.step) / beat.speed)} left"]
    return [*cells, "evaluating"] if beat.state == "evaluating" else cells
