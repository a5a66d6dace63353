"""Save and restore a run's state, so that an interrupted run ends with the same bits as an uninterrupted one."""

import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.plugins.io import CheckpointIO

from isobench.common.errors import extract_first_line
from isobench.common.files import (
    append_checksum,
    name_system_error,
    open_regular,
    require_checksum,
    write_whole,
)
from isobench.common.interruption import SignalWatch
from isobench.common.terminal import print_note
from isobench.config import schema
from isobench.runs.folder import CHECKPOINTS_FOLDER, refuse_link
from isobench.training.callbacks import EvaluationSchedule

CHECKPOINTS_KEPT = 2  # the newest, and the one before it in case the newest is damaged


class CheckpointFiles(CheckpointIO):
    """The checkpoint files of one run, ``<run>/checkpoints/step-<n>.ckpt``, as a Lightning plugin.

    Each has the run's key in it and a checksum at its end. They are loaded with ``weights_only``: a file can't run
    code. ``sources``: class of the user's own -> sha256 of its code, with which the run must go on. ``rounding``:
    how this process rounds sums (``list_rounding``); ``mixed``: whether an attempt before it rounded otherwise, None
    if its checkpoint doesn't say.
    """

    def __init__(self, run_folder: Path, key: str, sources: dict[str, str]) -> None:
        self.folder, self.key, self.sources = run_folder / CHECKPOINTS_FOLDER, key, sources
        refuse_link(self.folder)
        self.rounding: list[Any] = []
        self.mixed: bool | None = False
        self.save_seconds = 0.0  # spent on saving, in this attempt
        self._loaded: dict[str, Any] | None = None

    def list_files(self) -> list[Path]:
        """List all checkpoints, oldest first; OSError if the folder can't be read (glob may then find none)."""
        try:
            return sorted(file for file in self.folder.iterdir() if file.match("step-*.ckpt"))
        except FileNotFoundError:
            return []

    def load_newest(self) -> str | None:
        """Load the newest intact checkpoint of this run and return its path; rename those that can't be used."""
        files = self.list_files()
        for file in reversed(files):
            try:
                require_checksum(file)  # torch does not notice a changed byte
                with open_regular(file) as stream:  # through it, an error of the disk stays an OSError
                    checkpoint = torch.load(stream, map_location="cpu", weights_only=True)
                if checkpoint.get("run") != self.key:
                    raise ValueError("it belongs to another run")
                if checkpoint.get("sources", self.sources) != self.sources:
                    raise ValueError("its method's code was another")
            except (OSError, MemoryError):
                raise  # says nothing about the file: it may be intact
            except Exception as error:  # torch raises many kinds for a damaged file
                instead = "the run starts anew" if file == files[0] else "trying the one before"
                print_note(f"{file} can't be used ({extract_first_line(error)}): {instead}")
                file.rename(file.with_suffix(".damaged"))
                continue
            has_changed = checkpoint.get("rounding", self.rounding) != self.rounding
            self.mixed = has_changed or checkpoint.get("mixed")
            self._loaded = checkpoint
            return str(file)
        return None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        checkpoint |= {"run": self.key, "sources": self.sources, "rounding": self.rounding, "mixed": self.mixed}
        file = Path(path)
        with write_whole(file) as temporary:
            torch.save(checkpoint, temporary)
            append_checksum(temporary, file.name)
        for old in self.list_files()[:-CHECKPOINTS_KEPT]:
            old.unlink()

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Return what ``load_newest`` has read already."""
        assert self._loaded is not None
        loaded, self._loaded = self._loaded, None
        return loaded

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_all(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Checkpointer(Callback):
    """Save a checkpoint every so many steps or minutes, and when a signal asks the run to stop; restore it on resume.

    Lightning saves weights, optimiser, schedule and its own counters. This callback adds the position in the data,
    the states of all random generators and, between two optimiser steps, the accumulated gradients.

    No checkpoint is saved on an epoch's last batch: Lightning would take the epoch for finished and skip its
    evaluation. A save or a signal then waits for the next batch. If a signal stops a long evaluation, the resumed run
    trains again on the batches since the last checkpoint.

    ``loaders``: their ``sampler`` and ``batch_size``, with which the position in the epoch is found again.
    """

    def __init__(
        self,
        settings: schema.Checkpoint,
        files: CheckpointFiles,
        loaders: Any,
        watch: SignalWatch,
        evaluations: EvaluationSchedule,
    ) -> None:
        self.settings, self.files, self.loaders = settings, files, loaders
        self.watch, self.evaluations = watch, evaluations
        self._restored: dict[str, Any] | None = None
        self._gradients: dict[str, torch.Tensor] = {}
        self._batches = 0  # of this epoch that are trained on
        self._told = False  # the user, why a signal does not stop the evaluation

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.watch.start()  # again: Lightning has put its own handler there
        if self._restored is not None:
            self.loaders.sampler.skip(self._restored["batches"] * self.loaders.batch_size)
            _set_random_states(self._restored["random"])
            for name, gradient in self._gradients.items():
                parameter = module.get_parameter(name)
                parameter.grad = gradient.to(parameter.device)
            self._restored, self._gradients = None, {}
        self._last_save_step, self._last_save_time = trainer.global_step, time.monotonic()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        if trainer.is_last_batch:
            if trainer.num_training_batches == 1:
                self.watch.raise_if_signalled()
            return
        self._batches = index + 1
        is_last_but_one = index + 2 == trainer.num_training_batches  # nothing is saved on the last batch
        is_evaluated = self.evaluations.includes(trainer.current_epoch + 1)
        before_evaluation = module.long_evaluation and is_last_but_one and is_evaluated
        if before_evaluation or self.watch.signum is not None or self._is_save_due(trainer.global_step):
            self._save(trainer)
        self.watch.raise_if_signalled()

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        if self._batches % trainer.accumulate_grad_batches:  # between two steps
            checkpoint["gradients"] = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        self._gradients = checkpoint.get("gradients", {})

    def on_validation_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        if module.long_evaluation:
            self.watch.raise_if_signalled()
        elif self.watch.signum is not None and not self._told:
            self._told = True
            saved = "unsaved, as an epoch has one batch" if trainer.num_training_batches == 1 else "saved"
            print_note(f"the run ends after this evaluation, {saved}; Ctrl-C once more ends it at once, unsaved")

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self._batches, "random": _get_random_states()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._restored = state

    def _is_save_due(self, step: int) -> bool:
        steps, minutes = self.settings.steps, self.settings.minutes
        if steps is not None and step - self._last_save_step >= steps:
            return True
        return minutes is not None and time.monotonic() - self._last_save_time >= 60 * minutes

    def _save(self, trainer: Any) -> None:
        started = time.monotonic()
        try:
            trainer.save_checkpoint(self.files.folder / f"step-{trainer.global_step:09d}.ckpt")
        except (OSError, RuntimeError) as error:  # RuntimeError: torch's own, if the disk has room again
            reason = name_system_error(error) if isinstance(error, OSError) else extract_first_line(error)
            print_note(f"no checkpoint: {self.files.folder} can't be written: {reason}; the run goes on without")
        self._last_save_step, self._last_save_time = trainer.global_step, time.monotonic()
        self.files.save_seconds += self._last_save_time - started


def _get_random_states() -> dict[str, Any]:
    """Return the states of all global random generators, in types that ``weights_only`` loads."""
    name, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_available() else [],  # a run has one GPU
    }


def _set_random_states(states: dict[str, Any]) -> None:
    """Restore the states."""
    name, keys, *rest = states["numpy"]
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"][0])
