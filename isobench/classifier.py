"""encoder -> calibration -> dropout -> head, as a LightningModule."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from isobench.calibration.chain import Chain
from isobench.encoders import Loaded
from isobench.errors import RunFailure
from isobench.metrics.task import evaluate, is_constant, score
from isobench.schema import HELD_OUT, Config

CHECK_EVERY = 25  # steps between looks at the loss flag: each look makes a GPU wait


class Classifier(pl.LightningModule):
    """Sentence classifier or regressor with a calibration before its head.

    Args:
        cfg: the run's config.
        loaded: encoder and pooler.
        chain: the methods.
        total_steps: optimiser steps of the whole schedule.
    """

    bad_step: Tensor

    def __init__(self, cfg: Config, loaded: Loaded, chain: Chain, total_steps: int) -> None:
        super().__init__()
        self.cfg, self.total_steps = cfg, total_steps
        self.encoder, self.pooler, self.chain = loaded.encoder, loaded.pooler, chain
        dropout = cfg.head.dropout if cfg.head.dropout is not None else loaded.dropout
        self.dropout = nn.Dropout(dropout)
        classes = cfg.task.as_classes or (len(cfg.task.labels) if cfg.task.labels else 1)
        self.regression = classes == 1
        self.head = nn.Linear(chain.out_dim, classes)
        if cfg.head.init == "normal":
            nn.init.normal_(self.head.weight, std=0.02)
            nn.init.zeros_(self.head.bias)
        self.observed: dict[str, Any] = {}  # what callbacks measured of an epoch, for its record
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Any] = {}
        self.register_buffer("bad_step", torch.tensor(-1), persistent=False)

    def encode(self, batch: dict[str, Any]) -> Tensor:
        """The encoder's sentence vectors of a batch, [B, d], chunk by chunk, joined in the batch's order."""
        return torch.cat([self.encoder(**chunk) for chunk in batch["chunks"]])[batch["restore"]]  # (B, d)

    def embed(self, batch: dict[str, Any]) -> Tensor:
        """The calibrated sentence embeddings of a batch, [B, d], in the batch's order."""
        return self.chain(self.encode(batch), self.pooler)[0]

    def training_step(self, batch: dict[str, Any], index: int) -> Tensor:
        """Task loss, plus the methods' penalties and own objectives."""
        h, given = self.chain(self.encode(batch), self.pooler)
        loss = self.task_loss(self.head(self.dropout(h)), batch["labels"])
        for more in self.chain.losses(given, self.matrices()):
            loss = loss + more
        self._watch(loss.detach())
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss * self._weight(index)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Log the learning rate and the gradient's norm before clipping, on no other steps than are logged."""
        if self.logger is None or (self.global_step + 1) % self.trainer.log_every_n_steps:
            return
        self.log("train/lr", optimizer.param_groups[0]["lr"])
        if self.cfg.trainer.precision != "16-mixed":  # its gradients are still multiplied by the loss scale here
            gradients = [p.grad for p in self.parameters() if p.grad is not None]
            self.log("train/gradient_norm", nn.utils.get_total_norm(gradients))

    def matrices(self) -> dict[str, Callable[[], Tensor]]:
        """What a penalty can act on, and what isotropy is measured of: the head [c, d], the vocabulary [V, d]."""
        return {"head": lambda: self.head.weight, "vocabulary": self.encoder.vocabulary}

    def _weight(self, index: int) -> float:
        """1, but for an epoch's last step if it has fewer batches than ``accumulate``, by which Lightning divides."""
        accumulate = self.cfg.optimization.accumulate
        if accumulate == 1:
            return 1.0
        first = index - index % accumulate
        return accumulate / min(accumulate, self.trainer.num_training_batches - first)

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy over classes, or squared error for a regression."""
        logits = logits.float()
        if self.regression:
            return nn.functional.mse_loss(logits.squeeze(1), labels)
        return nn.functional.cross_entropy(logits, labels)

    def _watch(self, loss: Tensor) -> None:
        """Note the first non-finite step on the device; look at the note now and then."""
        new = ~torch.isfinite(loss) & (self.bad_step < 0)
        self.bad_step = torch.where(new, self.global_step + 1, self.bad_step)
        if self.device.type == "cpu" or self.global_step % CHECK_EVERY == 0:
            self._raise_if_bad()

    def _raise_if_bad(self) -> None:
        if (step := int(self.bad_step)) >= 0:
            raise RunFailure("non_finite_loss", f"the loss is not finite at step {step}", step)

    def on_train_epoch_end(self) -> None:
        """Look at the loss flag once more: nothing bad may reach an epoch's record unseen."""
        self._raise_if_bad()

    def on_validation_epoch_start(self) -> None:
        """Empty the collections of the epoch's predictions."""
        self.collected: dict[int, list[tuple[Tensor, ...]]] = {}

    def validation_step(self, batch: dict[str, Any], index: int, dataloader_idx: int = 0) -> dict[str, Tensor] | None:
        """Collect example index and logits; returns the calibrated embeddings of the first dev split."""
        h = self.embed(batch)
        row = (batch["index"], self.head(self.dropout(h)).float())
        self.collected.setdefault(dataloader_idx, []).append(row)
        return {"embedding": h.float()} if dataloader_idx == 0 else None

    def on_validation_epoch_end(self) -> None:
        """Score the epoch, and keep what callbacks observed and the reported epoch's predictions."""
        self._raise_if_bad()
        splits = self.cfg.task.evaluated
        labels = [loader.dataset.labels for loader in self.trainer.val_dataloaders]
        epoch: dict[str, Any] = {"epoch": self.current_epoch + 1, "step": self.global_step}
        outputs = {}
        for position, split in enumerate(splits):
            columns = [torch.cat(column) for column in zip(*self.collected[position], strict=True)]
            order = columns[0].argsort()
            logits = columns[1][order].cpu().numpy()
            if not np.isfinite(logits).all():
                raise RunFailure(
                    "non_finite_output",
                    f"logits are not finite after step {self.global_step}",
                    self.global_step,
                )
            predictions = logits[:, 0] if self.regression else logits.argmax(1)
            outputs[split] = {"logits": logits, "predictions": predictions, "labels": labels[position]}
            epoch[split] = evaluate(list(self.cfg.task.metrics), labels[position], predictions)
            epoch[split]["constant_predictor"] = is_constant(predictions)
        epoch |= self.observed
        self.observed = {}
        decides = HELD_OUT if HELD_OUT in epoch else splits[0]
        scores = {split: score(epoch[split][self.cfg.task.primary]) for split in dict.fromkeys((splits[0], decides))}
        epoch |= {"score": scores[splits[0]], "selection": scores[decides]}
        self.history.append(epoch)
        reported = self.cfg.optimization.report == "last" or not self.best
        if reported or epoch["selection"] > self.best["epoch"]["selection"]:
            self.best = {"epoch": epoch, "outputs": outputs}
        self.collected = {}
        self._log_epoch(epoch, splits)

    def _log_epoch(self, epoch: dict[str, Any], splits: list[str]) -> None:
        for split in splits:
            for name in self.cfg.task.metrics:
                self.log(f"dev/{split}/{name}", epoch[split][name])
        self.log(f"dev/{self.cfg.task.primary}", epoch["selection"], prog_bar=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The epochs so far and the best one's predictions travel with the weights."""
        checkpoint["history"], checkpoint["best"] = self.history, {}
        if self.best:
            outputs = {
                split: {name: torch.as_tensor(values) for name, values in output.items()}
                for split, output in self.best["outputs"].items()
            }
            checkpoint["best"] = {"epoch": self.best["epoch"], "outputs": outputs}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The inverse of ``on_save_checkpoint``."""
        self.history, self.best = checkpoint["history"], checkpoint["best"]
        for output in self.best.get("outputs", {}).values():
            output.update({name: values.numpy() for name, values in output.items()})

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
        warm = min(math.ceil(o.warmup * self.total_steps), self.total_steps - 1)

        def factor(step: int) -> float:
            if step < warm:
                return step / warm
            if o.schedule == "constant":
                return 1.0
            return max(0.0, (self.total_steps - step) / max(1, self.total_steps - warm))

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
