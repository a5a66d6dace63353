"""Show a sweep's running runs in the terminal, one line each."""

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
from isobench.sweep.forecast import format_duration
from isobench.training.execute import format_run_name

COLUMNS = 6  # name, epoch, step, speed, time left, evaluation
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
        self.first_beats: dict[Path, Beat] = {}  # by the run's folder: where this attempt began to train

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
        for cfg, folder, pid in running:
            table.add_row(format_run_name(cfg), *self._describe(cfg, folder, pid))
        self.live.update(Group(table, Text(f"{self.ended} of {self.total} runs have ended")), refresh=True)

    def _describe(self, cfg: Config, folder: Path, pid: int | None) -> list[str]:
        """Describe how far a run is: its epoch, its step, its speed and the time that it has left."""
        beat, first = read_heartbeat(folder), self.first_beats.get(folder)
        has_begun = first is not None and first.pid == pid
        if beat is None or beat.pid != pid:  # the file of another attempt, or removed when the run has ended
            return ["ending" if has_begun else "starting"]
        if beat.step is None or not beat.steps:
            return [beat.state]
        if first is None or not has_begun:
            if beat.state == "starting":
                return [f"starting from step {beat.step}"]
            first = self.first_beats[folder] = beat
        return describe_progress(first, beat, cfg.optimization.epochs)


def describe_progress(first: Beat, beat: Beat, epochs: int) -> list[str]:
    """Describe a run's progress in cells of a table: epoch, step, speed and time left.

    Args:
        first: the first heartbeat of this attempt that told of a step.
        beat: the newest heartbeat, which tells of a step too.
        epochs: of the whole run.
    """
    step, steps = beat.step or 0, beat.steps or 1
    epoch = min(epochs, 1 + step * epochs // steps)
    cells = [f"epoch {epoch} of {epochs}", f"step {step} of {steps}"]
    done, seconds = step - (first.step or 0), beat.updated - first.updated
    if done > 0 and seconds > 0:
        speed = done / seconds
        cells += [f"{speed:.2g} steps/s", f"{format_duration((steps - step) / speed)} left"]
    return [*cells, "evaluating"] if beat.state == "evaluating" else cells
