"""What a run costs."""

import time
from typing import Any

from pytorch_lightning.callbacks import Callback
from torch.utils.data import DataLoader

from isobench.provenance import peak_memory_mib


class Stopwatch(Callback):
    """Seconds spent in training steps, apart from evaluation."""

    def __init__(self) -> None:
        self.training, self.evaluation, self.examples, self._mark = 0.0, 0.0, 0, 0.0

    def on_train_epoch_start(self, *_: Any) -> None:
        """Start the clock."""
        self._mark = time.perf_counter()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: dict[str, Any], index: int) -> None:
        """Count what was trained on."""
        self.examples += len(batch["labels"])

    def on_validation_start(self, *_: Any) -> None:
        """Training pauses for evaluation."""
        now = time.perf_counter()
        self.training, self._mark = self.training + now - self._mark, now

    def on_validation_end(self, *_: Any) -> None:
        """Evaluation is over."""
        now = time.perf_counter()
        self.evaluation, self._mark = self.evaluation + now - self._mark, now


def cost(started: float, stopwatch: Stopwatch, train_loader: DataLoader) -> dict[str, Any]:
    """Seconds, throughput and memory of the run."""
    lengths = train_loader.dataset.lengths  # type: ignore[attr-defined]
    tokens = stopwatch.examples * float(lengths.mean())
    return {
        "seconds": round(time.perf_counter() - started, 3),
        "training_seconds": round(stopwatch.training, 3),
        "evaluation_seconds": round(stopwatch.evaluation, 3),
        "examples": stopwatch.examples,
        "tokens_per_second": round(tokens / stopwatch.training, 1) if stopwatch.training else None,
        "peak_memory_mib": peak_memory_mib(),
    }
