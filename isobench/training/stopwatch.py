"""Measure what a run costs: seconds, throughput and memory."""

import time
from typing import Any

from pytorch_lightning.callbacks import Callback
from torch.utils.data import DataLoader

from isobench.common.provenance import read_peak_memory_mib
from isobench.runs.record import Cost, PeakMemory


class Stopwatch(Callback):
    """Measure the seconds spent in training steps and in evaluation, over all attempts at a run.

    At every validation, log the throughput since the one before: ``train/examples_per_second`` and
    ``train/tokens_per_second``.
    """

    def __init__(self) -> None:
        self.training_seconds, self.evaluation_seconds, self.examples = 0.0, 0.0, 0
        self.seconds_before = 0.0  # seconds that earlier attempts at this run took, up to their last checkpoint
        self.started = self._mark = time.perf_counter()
        self._logged = (0.0, 0)  # training seconds and examples up to the last validation

    @property
    def timed_examples(self) -> int:
        """The examples that ``training_seconds`` were spent on: those up to the last validation or checkpoint."""
        return self._logged[1]

    @property
    def seconds(self) -> float:
        """Seconds that the run took so far, over all attempts."""
        return self.seconds_before + time.perf_counter() - self.started

    def on_train_start(self, *_: Any) -> None:
        """Start timing the training steps."""
        self._mark = time.perf_counter()

    def state_dict(self) -> dict[str, Any]:
        """Return the times so far, for a checkpoint."""
        training = self.training_seconds + time.perf_counter() - self._mark
        return {
            "training": training,
            "evaluation": self.evaluation_seconds,
            "examples": self.examples,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the times from a checkpoint."""
        self.training_seconds, self.evaluation_seconds = state["training"], state["evaluation"]
        self.examples, self.seconds_before = state["examples"], state["seconds"]
        self._logged = (self.training_seconds, self.examples)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: dict[str, Any], index: int) -> None:
        """Count the batch's examples."""
        self.examples += len(batch["index"])

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Stop timing training and start timing evaluation; log the throughput."""
        now = time.perf_counter()
        self.training_seconds, self._mark = self.training_seconds + now - self._mark, now
        seconds, examples = self.training_seconds - self._logged[0], self.examples - self._logged[1]
        self._logged = (self.training_seconds, self.examples)
        if seconds > 0 and examples:
            length = float(trainer.train_dataloader.dataset.lengths.mean())
            self.log("train/examples_per_second", examples / seconds)
            self.log("train/tokens_per_second", length * examples / seconds)

    def on_validation_end(self, *_: Any) -> None:
        """Stop timing evaluation and start timing training."""
        now = time.perf_counter()
        self.evaluation_seconds, self._mark = self.evaluation_seconds + now - self._mark, now


def measure_run_cost(stopwatch: Stopwatch, train_loader: DataLoader | None, checkpoint_seconds: float) -> Cost:
    """Build the record's cost: seconds over all attempts, throughput and peak memory.

    Args:
        stopwatch: has timed the run.
        train_loader: the training data, to count tokens; None if the run failed before it was built.
        checkpoint_seconds: seconds spent on saving checkpoints in this attempt.
    """
    lengths = train_loader.dataset.lengths.mean() if train_loader is not None else 0.0  # type: ignore[attr-defined]
    tokens = stopwatch.timed_examples * float(lengths)
    return Cost(
        seconds=round(stopwatch.seconds, 3),
        training_seconds=round(stopwatch.training_seconds, 3),
        evaluation_seconds=round(stopwatch.evaluation_seconds, 3),
        checkpoint_seconds=round(checkpoint_seconds, 3),
        examples=stopwatch.examples,
        tokens_per_second=round(tokens / stopwatch.training_seconds, 1) if stopwatch.training_seconds else None,
        peak_memory_mib=PeakMemory.model_validate(read_peak_memory_mib()),
    )
