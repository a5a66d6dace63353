"""Report how far a run is: in its heartbeat, and on a terminal as a moving bar with loss, speed and time left."""

import sys
import time
from typing import Any

from pytorch_lightning.callbacks import Callback

from isobench.common.progress import ProgressBar
from isobench.runs.heartbeat import Heartbeat
from isobench.training.fine_tuned import LOSS_CHECK_INTERVAL


class ProgressReporter(Callback):
    """Report a run's progress to its heartbeat and, if ``show``, in a progress bar over all its optimiser steps.

    Speed and time left are averages since training began in this process, evaluations included. A resumed run
    prints where it goes on. On a GPU the loss is read only as often as it is checked, because reading makes it wait.

    Args:
        heartbeat: receives the progress, for status displays.
        show: whether to draw the bar.
        name: of the run, for the message of a resumed one.
    """

    def __init__(self, heartbeat: Heartbeat, show: bool, name: str) -> None:
        self.heartbeat, self.show, self.name = heartbeat, show, name
        self.bar: ProgressBar | None = None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Say where a resumed run goes on, and show the bar."""
        step, steps = trainer.global_step, module.total_steps
        self._first_step, self._start_time = step, time.monotonic()
        self._newest_step = step
        if step:
            where = f"step {step:,} of {steps:,}, in {format_epoch(trainer)}"
            print(f"{self.name}: goes on from {where}", file=sys.stderr, flush=True)
        self.bar = ProgressBar(format_epoch(trainer), steps, "step", start=step, show=self.show)
        self.heartbeat.report_training(step, steps)

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        """Name the epoch in the bar."""
        self._label_bar(format_epoch(trainer))

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Report the step, its loss where that is known without waiting, and the speed."""
        assert self.bar is not None
        step, loss = trainer.global_step, None
        has_stepped, self._newest_step = step > self._newest_step, step  # not so after a batch that only accumulates
        if module.device.type == "cpu" or (has_stepped and step % LOSS_CHECK_INTERVAL == 0):
            loss = float(trainer.callback_metrics["train/loss"])
            self.bar.loss = f"{loss:.3f}"
        self.bar.update(step - self.bar.n)
        speed = (step - self._first_step) / (time.monotonic() - self._start_time)
        self.heartbeat.report_training(step, module.total_steps, loss, speed)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Report that the run is evaluating."""
        self.heartbeat.report_evaluating()
        self._evaluated = 0

    def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
        """Show how many of the dev splits' batches are done."""
        self._evaluated += 1
        self._label_bar(f"{format_epoch(trainer)}, evaluating {self._evaluated}/{sum(trainer.num_val_batches)}")

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """Show that training goes on."""
        self._label_bar(format_epoch(trainer))

    def close(self) -> None:
        """Remove the bar, also after an error."""
        if self.bar is not None:
            self.bar.close()

    def _label_bar(self, label: str) -> None:
        assert self.bar is not None
        self.bar.set_description_str(label, refresh=False)
        self.bar.update(0)  # draws it, unless it was drawn a moment ago


def format_epoch(trainer: Any) -> str:
    """Name the trainer's epoch, counted from 1, and how many there are: ``epoch 2/10``."""
    return f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
