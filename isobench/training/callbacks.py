"""Callbacks of a run: when it is evaluated and stopped, what it costs, and how far it is."""

import math
import sys
import time
from typing import Any

from pytorch_lightning.callbacks import Callback, EarlyStopping

from isobench.common.environment import read_peak_memory_mib
from isobench.common.progress import ProgressBar
from isobench.config.schema import LAST_EPOCH, Config
from isobench.runs.record import Cost, PeakMemory
from isobench.runs.state import Heartbeat
from isobench.training.fine_tuned import LOSS_CHECK_INTERVAL


class EvaluationSchedule(Callback):
    """Let the trainer evaluate after every so many epochs (``evaluation.every``), and always after the last one.

    Lightning's own ``check_val_every_n_epoch`` can leave out the last epoch, so it is set anew for each epoch.
    """

    def __init__(self, every: Any, epochs: int) -> None:
        self.every, self.epochs = epochs if every == LAST_EPOCH else every, epochs

    def includes(self, epoch: int) -> bool:
        """Return whether the run is evaluated after this epoch, counted from 1."""
        return epoch % self.every == 0 or epoch == self.epochs

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        never = self.epochs + 1  # no epoch's number can be divided by it
        trainer.check_val_every_n_epoch = 1 if self.includes(trainer.current_epoch + 1) else never

    on_train_start = on_train_epoch_start  # a run that goes on within an epoch does not start it again


def make_early_stopping(cfg: Config) -> list[Callback]:
    """Make the callback that stops ``optimization.patience`` epochs after the best one; none if that is null."""
    if cfg.optimization.patience is None:
        return []
    evaluations = math.ceil(cfg.optimization.patience / cfg.evaluation.every)
    name = f"dev/{cfg.task.primary}"
    return [EarlyStopping(name, patience=evaluations, mode="max", check_on_train_epoch_end=False)]


class Stopwatch(Callback):
    """Measure the seconds spent in training steps and in evaluation, over all attempts at a run.

    At every validation, log ``train/examples_per_second`` and ``train/tokens_per_second`` since the one before.
    ``mean_tokens``: of a training example; to be set before the training.
    """

    def __init__(self) -> None:
        self.training_seconds, self.evaluation_seconds, self.examples, self.mean_tokens = 0.0, 0.0, 0, 0.0
        self.seconds_before = 0.0  # seconds that earlier attempts at this run took, up to their last checkpoint
        self.started = self._mark = time.perf_counter()  # the mark: up to where seconds are added up
        self._logged = (0.0, 0)  # training seconds and examples up to the last validation

    @property
    def seconds(self) -> float:
        """Seconds that the run took so far, over all attempts."""
        return self.seconds_before + time.perf_counter() - self.started

    def on_train_start(self, *_: Any) -> None:
        self._mark = time.perf_counter()

    def on_train_epoch_start(self, *_: Any) -> None:
        if not self.examples:
            self._mark = time.perf_counter()  # without what monitors measured before the first step

    def state_dict(self) -> dict[str, Any]:
        training = self.training_seconds + time.perf_counter() - self._mark
        times = {"training": training, "evaluation": self.evaluation_seconds, "seconds": self.seconds}
        return {**times, "examples": self.examples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.training_seconds, self.evaluation_seconds = state["training"], state["evaluation"]
        self.examples, self.seconds_before = state["examples"], state["seconds"]
        self._logged = (self.training_seconds, self.examples)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: dict[str, Any], index: int) -> None:
        self.examples += len(batch["index"])

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        now = time.perf_counter()
        self.training_seconds, self._mark = self.training_seconds + now - self._mark, now
        seconds, examples = self.training_seconds - self._logged[0], self.examples - self._logged[1]
        self._logged = (self.training_seconds, self.examples)
        if seconds > 0 and examples:
            self.log("train/examples_per_second", examples / seconds)
            self.log("train/tokens_per_second", self.mean_tokens * examples / seconds)

    def on_validation_end(self, *_: Any) -> None:
        now = time.perf_counter()
        self.evaluation_seconds, self._mark = self.evaluation_seconds + now - self._mark, now

    def measure_cost(self, checkpoint_seconds: float) -> Cost:
        tokens = self._logged[1] * self.mean_tokens  # ``training_seconds`` were spent on these
        return Cost(
            seconds=round(self.seconds, 3),
            training_seconds=round(self.training_seconds, 3),
            evaluation_seconds=round(self.evaluation_seconds, 3),
            checkpoint_seconds=round(checkpoint_seconds, 3),
            examples=self.examples,
            tokens_per_second=round(tokens / self.training_seconds, 1) if self.training_seconds else None,
            peak_memory_mib=PeakMemory.model_validate(read_peak_memory_mib()),
        )


class ProgressReporter(Callback):
    """Report a run's progress to its heartbeat, and in a progress bar over all its optimiser steps.

    Speed and time left are averages since training began in this process, evaluations included. On a GPU the loss is
    read only as often as it is checked, because reading makes it wait.
    """

    def __init__(self, heartbeat: Heartbeat, name: str) -> None:
        self.heartbeat, self.name = heartbeat, name
        self.bar: ProgressBar | None = None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        step, steps = trainer.global_step, module.total_steps
        self._first_step, self._start_time = step, time.monotonic()
        self._newest_step = step
        if step:
            where = f"step {step:,} of {steps:,}, in {_format_epoch(trainer)}"
            print(f"{self.name}: goes on from {where}", file=sys.stderr, flush=True)
        self.bar = ProgressBar(_format_epoch(trainer), steps, "step", start=step)
        self.heartbeat.report_training(step, steps)

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self._label_bar(_format_epoch(trainer))

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        assert self.bar is not None
        step, loss = trainer.global_step, None
        has_stepped, self._newest_step = step > self._newest_step, step  # not so after a batch that only accumulates
        if module.device.type == "cpu" or (has_stepped and step % LOSS_CHECK_INTERVAL == 0):
            loss = float(trainer.callback_metrics["train/loss"])
            self.bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        self.bar.update(step - self.bar.n)
        speed = (step - self._first_step) / (time.monotonic() - self._start_time)
        self.heartbeat.report_training(step, module.total_steps, loss, speed)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        self.heartbeat.report_evaluating()
        self._evaluated = 0

    def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
        self._evaluated += 1
        self._label_bar(f"{_format_epoch(trainer)}, evaluating {self._evaluated}/{sum(trainer.num_val_batches)}")

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        self._label_bar(_format_epoch(trainer))

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()

    def _label_bar(self, label: str) -> None:
        assert self.bar is not None
        self.bar.set_description_str(label, refresh=False)
        self.bar.update(0)  # draws it, unless it was drawn a moment ago


def _format_epoch(trainer: Any) -> str:
    return f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
