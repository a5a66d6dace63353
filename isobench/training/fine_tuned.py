"""What every fine-tuned model shares: its methods, the watch over its loss, its epochs' record, its optimiser."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from isobench.calibration.chain import Chain
from isobench.common.errors import RunFailure
from isobench.config.schema import HELD_OUT, Config, Optimization
from isobench.metrics.task import nan_to_zero
from isobench.runs.record import Epoch

LOSS_CHECK_INTERVAL = 25  # steps between looks at the loss flag: each look makes a GPU wait
DEFAULT_END_LR = 1e-7  # of polynomial decay, unless optimization.end_lr says: transformers' default


class ReportedEpoch(NamedTuple):
    """The epoch that is reported so far, with what is written of its examples: dev split -> name -> values, [N]."""

    epoch: Epoch
    outputs: dict[str, dict[str, Any]]


class FineTuningModule(pl.LightningModule):
    """Base of the modules that are trained here; it has no forward of its own.

    Args:
        cfg: the run's config.
        chain: the methods.
        total_steps: optimiser steps of the whole schedule.
    """

    bad_step: Tensor

    def __init__(self, cfg: Config, chain: Chain, total_steps: int) -> None:
        super().__init__()
        self.cfg, self.chain, self.total_steps = cfg, chain, total_steps
        self.observed: dict[str, Any] = {}  # what callbacks measured of an epoch, for its record
        self.history: list[Epoch] = []
        self.best: ReportedEpoch | None = None
        self.register_buffer("bad_step", torch.tensor(-1), persistent=False)

    def matrices(self) -> dict[str, Callable[[], Tensor]]:
        """What a penalty can act on, and what isotropy is measured of: name -> how to get the matrix [V, d]."""
        raise NotImplementedError

    def compute_total_loss(self, loss: Tensor, given: list[Tensor], index: int) -> Tensor:
        """The task's loss with the methods' penalties and objectives, watched, logged, weighted for accumulation.

        Args:
            loss: the task's, of a batch.
            given: what the chain returned beside its embeddings.
            index: of the batch in its epoch.
        """
        for more in self.chain.losses(given, self.matrices()):
            loss = loss + more
        self._note_non_finite_loss(loss.detach())
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss * self._accumulation_weight(index)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Log the learning rate and the gradient's norm before clipping, on no other steps than are logged."""
        if self.logger is None or (self.global_step + 1) % self.trainer.log_every_n_steps:
            return
        self.log("train/lr", optimizer.param_groups[0]["lr"])
        if self.cfg.trainer.precision != "16-mixed":  # its gradients are still multiplied by the loss scale here
            gradients = [p.grad for p in self.parameters() if p.grad is not None]
            self.log("train/gradient_norm", nn.utils.get_total_norm(gradients))

    def _accumulation_weight(self, index: int) -> float:
        """1, but for an epoch's last step if it has fewer batches than ``accumulate``, by which Lightning divides."""
        accumulate = self.cfg.optimization.accumulate
        if accumulate == 1:
            return 1.0
        first = index - index % accumulate
        return accumulate / min(accumulate, self.trainer.num_training_batches - first)

    def _note_non_finite_loss(self, loss: Tensor) -> None:
        """Note the first non-finite step on the device; look at the note now and then."""
        new = ~torch.isfinite(loss) & (self.bad_step < 0)
        self.bad_step = torch.where(new, self.global_step + 1, self.bad_step)
        if self.device.type == "cpu" or self.global_step % LOSS_CHECK_INTERVAL == 0:
            self._raise_if_non_finite()

    def _raise_if_non_finite(self) -> None:
        if (step := int(self.bad_step)) >= 0:
            raise RunFailure("non_finite_loss", f"the loss is not finite at step {step}", step)

    def on_train_epoch_end(self) -> None:
        """Look at the loss flag once more: nothing bad may reach an epoch's record unseen."""
        self._raise_if_non_finite()

    def record_epoch(self, scores: dict[str, dict[str, Any]], outputs: dict[str, dict[str, Any]]) -> None:
        """End an epoch's evaluation: its entry in the history, the reported epoch's outputs, the log.

        Args:
            scores: dev split -> its metrics, and ``constant_predictor``.
            outputs: dev split -> what is written of its examples, arrays or lists, [N] each.
        """
        splits = self.cfg.task.evaluated
        decides = HELD_OUT if HELD_OUT in scores else splits[0]
        found = {
            split: nan_to_zero(scores[split][self.cfg.task.primary]) for split in dict.fromkeys((splits[0], decides))
        }
        named = {"epoch": self.current_epoch + 1, "step": self.global_step}
        named |= {"score": found[splits[0]], "selection": found[decides]}
        epoch = Epoch.model_validate({**scores, **self.observed, **named})
        self.observed = {}
        self.history.append(epoch)
        reported = self.cfg.optimization.report == "last"
        if reported or self.best is None or epoch.selection > self.best.epoch.selection:
            self.best = ReportedEpoch(epoch, outputs)
        self._log_epoch(epoch, splits)

    def _log_epoch(self, epoch: Epoch, splits: list[str]) -> None:
        for split in splits:
            metrics = epoch.metrics(split)
            for name in (*self.cfg.task.metrics, *(["loss"] if "loss" in metrics else [])):
                self.log(f"dev/{split}/{name}", metrics[name])
        self.log(f"dev/{self.cfg.task.primary}", epoch.selection, prog_bar=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The epochs so far and the best one's predictions travel with the weights."""
        checkpoint["history"] = [epoch.model_dump(exclude_unset=True) for epoch in self.history]
        checkpoint["best"] = {}
        if self.best:
            outputs = {
                split: {name: convert_for_checkpoint(values) for name, values in output.items()}
                for split, output in self.best.outputs.items()
            }
            checkpoint["best"] = {"epoch": self.best.epoch.model_dump(exclude_unset=True), "outputs": outputs}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The inverse of ``on_save_checkpoint``."""
        self.history = [Epoch.model_validate(entry) for entry in checkpoint["history"]]
        if best := checkpoint["best"]:
            for output in best["outputs"].values():
                output.update({name: v.numpy() if isinstance(v, Tensor) else v for name, v in output.items()})
            self.best = ReportedEpoch(Epoch.model_validate(best["epoch"]), best["outputs"])

    def configure_optimizers(self) -> dict[str, Any]:
        """AdamW without decay on biases and norms; linear warm-up, then linear decay to zero or a constant rate."""
        o = self.cfg.optimization
        own = self.chain.parameter_groups()
        taken = {id(p) for group in own for p in group["params"]}
        rest = [p for p in self.parameters() if p.requires_grad and id(p) not in taken]
        groups = [
            {"params": [p for p in rest if p.ndim > 1], "weight_decay": o.weight_decay},
            {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
            *own,
        ]
        fused = o.clip is None or self.cfg.trainer.precision == "32-true"  # Lightning's rule for mixed precision
        optimizer = torch.optim.AdamW(groups, lr=o.lr, eps=o.eps, fused=fused)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, LearningRateSchedule(o, self.total_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class LearningRateSchedule:
    """The factor of every learning rate at a step: linear warm-up, then what ``optimization.schedule`` says.

    Polynomial decay ends at ``end_lr`` / ``lr`` and stays there, as transformers' does; linear decay is its case of
    power 1 and end 0.
    """

    def __init__(self, o: Optimization, total_steps: int) -> None:
        self.constant, self.total = o.schedule == "constant", total_steps
        self.warmup_steps = min(math.ceil(o.warmup * total_steps), total_steps - 1)
        polynomial = o.schedule == "polynomial"
        self.power = 1.0 if not polynomial or o.power is None else o.power
        self.end = (DEFAULT_END_LR if o.end_lr is None else o.end_lr) / o.lr if polynomial else 0.0

    def __call__(self, step: int) -> float:
        """Of the optimiser step that comes after ``step`` others."""
        if step < self.warmup_steps:
            return step / self.warmup_steps
        if self.constant:
            return 1.0
        left = max(0.0, (self.total - step) / max(1, self.total - self.warmup_steps))
        return self.end + (1.0 - self.end) * left**self.power


def convert_for_checkpoint(values: Any) -> Any:
    """An array as a tensor, which a checkpoint can be read back with; lists of texts as they are."""
    return torch.as_tensor(values) if isinstance(values, np.ndarray) else values
