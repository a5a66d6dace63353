"""Checkpoints of a run: everything that an interrupted run needs to end with the bits of an uninterrupted one."""

import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.plugins.io import CheckpointIO

from isobench.common.errors import extract_first_line
from isobench.common.files import write_atomic
from isobench.common.interruption import SignalWatch
from isobench.config import schema
from isobench.data.tokens import EpochSampler
from isobench.runs.heartbeat import Heartbeat

CHECKPOINTS_KEPT = 2  # the newest, and the one before it in case the newest is damaged


class CheckpointFiles(CheckpointIO):
    """``<run>/checkpoints/step-<n>.ckpt``, the two newest; written whole or not at all, loaded as data, not code."""

    def __init__(self, run_folder: Path, key: str) -> None:
        self.folder, self.key = run_folder / "checkpoints", key
        self._loaded: dict[str, Any] | None = None

    def list_files(self) -> list[Path]:
        """All checkpoints, oldest first."""
        return sorted(self.folder.glob("step-*.ckpt"))

    def load_newest(self) -> str | None:
        """Load the newest checkpoint that is whole and this run's; returns its path, to be given to Lightning."""
        for file in reversed(self.list_files()):
            try:
                checkpoint = torch.load(file, map_location="cpu", weights_only=True)
                if checkpoint.get("run") != self.key:
                    raise ValueError("it belongs to another run")
            except (OSError, MemoryError):
                raise  # the file may be as good as ever
            except Exception as error:  # torch raises many kinds for a damaged file
                print(
                    f"isobench: {file} can't be used ({extract_first_line(error)}): the one before is",
                    file=sys.stderr,
                )
                file.rename(file.with_suffix(".damaged"))
                continue
            self._loaded = checkpoint
            return str(file)
        return None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Called by Lightning."""
        checkpoint["run"] = self.key
        write_atomic(Path(path), lambda temporary: torch.save(checkpoint, temporary))
        for file in self.list_files()[:-CHECKPOINTS_KEPT]:
            file.unlink()

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Called by Lightning; what ``newest`` read is not read twice."""
        assert self._loaded is not None
        loaded, self._loaded = self._loaded, None
        return loaded

    def remove_checkpoint(self, path: Any) -> None:
        """Called by Lightning."""
        Path(path).unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Checkpointer(Callback):
    """Saves every so many steps or minutes, and when a signal asks the run to stop; restores on resume.

    Lightning keeps weights, optimiser, schedule and its own counters; this adds the position in the data and
    all random streams. A save that falls on an epoch's last batch waits for the next batch: Lightning takes a
    checkpoint made there for a finished epoch and skips its evaluation. Between two steps the gradients that have
    been accumulated are saved too. A signal during an evaluation stops it; the epoch's last batches are then trained
    on again.

    Args:
        settings: ``checkpoint`` of the config.
        files: where checkpoints go.
        sampler: the training data's sampler.
        batch_size: examples a batch, to find the place in an epoch again.
        watch: notes signals.
        heartbeat: told of progress.
        long_evaluation: save before every evaluation, as near to the epoch's end as can be.
    """

    def __init__(
        self,
        settings: schema.Checkpoint,
        files: CheckpointFiles,
        sampler: EpochSampler,
        batch_size: int,
        watch: SignalWatch,
        heartbeat: Heartbeat,
        long_evaluation: bool = False,
    ) -> None:
        self.long_evaluation = long_evaluation
        self.settings, self.files, self.watch, self.heartbeat = settings, files, watch, heartbeat
        self.sampler, self.batch_size = sampler, batch_size
        self.save_seconds = 0.0  # spent on saving
        self._restored: dict[str, Any] | None = None
        self._gradients: dict[str, torch.Tensor] = {}
        self._batches = 0

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Take the signals back from Lightning; on resume, go to the place in data and random streams."""
        self.watch.start()
        if self._restored is not None:
            self.sampler.skip(self._restored["batches"] * self.batch_size)
            set_random_states(self._restored["random"])
            for name, gradient in self._gradients.items():
                parameter = module.get_parameter(name)
                parameter.grad = gradient.to(parameter.device)
            self._restored, self._gradients = None, {}
        self._last_save_step, self._last_save_time = trainer.global_step, time.monotonic()
        self.heartbeat.training(trainer.global_step, module.total_steps)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Save if it is time to, or if a signal was noted; then obey it."""
        self.heartbeat.training(trainer.global_step, module.total_steps)
        if trainer.is_last_batch:
            return
        self._batches = index + 1
        before_evaluation = self.long_evaluation and index + 2 == trainer.num_training_batches
        if before_evaluation or self.watch.signum is not None or self._is_save_due(trainer.global_step):
            self._save(trainer)
        self.watch.raise_if_signalled()

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Add the gradients that wait for their step."""
        if self._batches % trainer.accumulate_grad_batches:
            waiting = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
            checkpoint["gradients"] = waiting

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Called by Lightning as it resumes."""
        self._gradients = checkpoint.get("gradients", {})

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Tell the heartbeat."""
        self.heartbeat.report_evaluating()

    def on_validation_batch_end(self, *_: Any) -> None:
        """Obey a signal: a long evaluation is worth less than being stopped in time."""
        if self.long_evaluation:
            self.watch.raise_if_signalled()

    def state_dict(self) -> dict[str, Any]:
        """Called by Lightning as it saves."""
        return {"batches": self._batches, "random": get_random_states()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Called by Lightning as it resumes."""
        self._restored = state

    def _is_save_due(self, step: int) -> bool:
        steps, minutes = self.settings.steps, self.settings.minutes
        return (steps is not None and step - self._last_save_step >= steps) or (
            minutes is not None and time.monotonic() - self._last_save_time >= 60 * minutes
        )

    def _save(self, trainer: Any) -> None:
        started = time.monotonic()
        try:
            trainer.save_checkpoint(self.files.folder / f"step-{trainer.global_step:09d}.ckpt")
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            print(f"isobench: no checkpoint: {extract_first_line(error)}; the run goes on without", file=sys.stderr)
        self._last_save_step, self._last_save_time = trainer.global_step, time.monotonic()
        self.save_seconds += self._last_save_time - started


def get_random_states() -> dict[str, Any]:
    """The states of every global generator, as tensors and plain values."""
    name, keys, *rest = np.random.get_state()
    states = {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(states: dict[str, Any]) -> None:
    """The inverse of ``random_states``."""
    name, keys, *rest = states["numpy"]
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["cuda"] and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    if "mps" in states and torch.backends.mps.is_available():
        torch.mps.set_rng_state(states["mps"])
