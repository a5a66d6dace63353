"""The module for language modelling: the next token, or masked tokens, from calibrated states."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isobench.calibration.chain import Chain
from isobench.common.errors import RunFailure
from isobench.config.schema import Config, Task
from isobench.data.batches.loaders import SplitLoaders
from isobench.kinds.words.projection import IDENTITY_POOLER, MAX_MEASURED_STATES, CalibratedProjection
from isobench.metrics.task import is_constant
from isobench.models.encoders import CAUSAL, MASKED, Family, LoadedGenerator
from isobench.tasks.kind import kind_of
from isobench.training.fine_tuned import FineTuningModule


def find_family(task: Task) -> Family:
    """Find the family of models for the task's objective."""
    return MASKED if task.language and task.language.objective == "masked" else CAUSAL


class LanguageModel(FineTuningModule):
    """Predict each token of a window from those before it, or masked tokens from all others.

    A state is the vector that the output embedding reads. A calibration changes the states, as in translation.
    """

    def __init__(
        self, cfg: Config, loaded: LoadedGenerator, chain: Chain, loaders: SplitLoaders, total_steps: int
    ) -> None:
        super().__init__(cfg, chain, total_steps)
        assert cfg.task.language is not None
        self.model, self.language = loaded.model, cfg.task.language
        self.model.config.use_cache = False  # keys and values are kept for generation, and nothing is generated
        if cfg.encoder.frozen_blocks:
            blocks = max((m for m in self.model.modules() if isinstance(m, nn.ModuleList)), key=len)
            blocks.requires_grad_(False)
        self.projection = CalibratedProjection(loaded.model, chain)
        tokenizer = loaders.inputs.tokenizer
        # A tokenizer that was learned here makes no unknown token: it stands for the mask.
        self.mask_id = tokenizer.mask_token_id if tokenizer.mask_token_id is not None else tokenizer.unk_token_id
        share = self.language.masked_share if self.language.objective == "masked" else 1.0
        predicted = loaders.sizes[cfg.task.dev_splits[0]] * loaders.max_length * share
        self.state_stride = 1 + int(predicted) // MAX_MEASURED_STATES
        while math.gcd(self.state_stride, loaders.max_length - 1) > 1:  # else few of a window's places are measured
            self.state_stride += 1

    def compute_states(
        self, ids: Tensor, masked: Tensor | None, every_layer: bool = False
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Compute the uncalibrated states of the tokens to predict, [n, d], row by row, and these tokens, [n].

        ``masked`` [B, T]: the tokens to predict; None for the next token of each but the last of a row. With
        ``every_layer`` the list has what each layer but the last returns, [n, d], after the embeddings'.
        """
        if masked is None:
            predicted, target = torch.ones_like(ids, dtype=torch.bool), ids.roll(-1, 1)
            predicted[:, -1] = False
            given = ids
        else:
            predicted, target, given = masked, ids, ids.masked_fill(masked, self.mask_id)
        # What the output layer reads at these places is kept, and no logits are computed.
        with self.projection.capture_states(predicted.flatten().nonzero()[:, 0]) as kept:
            output = self.model(input_ids=given, output_hidden_states=every_layer)
        layers = [states[predicted] for states in output.hidden_states[:-1]] if every_layer else []
        return kept[-1], target[predicted], layers

    def export(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        """Write the model."""
        self.model.save_pretrained(folder)
        return {"load_with": find_family(self.cfg.task).auto}, []

    def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
        ids = batch["ids"]
        masked = None
        if self.language.objective == "masked":
            masked = self._choose_masked(torch.rand(ids.shape, device=ids.device))
        states, labels, _ = self.compute_states(ids, masked)
        h, method_inputs = self.chain(states, IDENTITY_POOLER)
        loss = self.projection.sum_losses(h, labels) / len(labels)
        return self.compute_total_loss(loss, method_inputs, index)

    def matrices(self) -> dict[str, Callable[[], Tensor]]:
        """Return those of the projection: ``head`` and ``vocabulary``."""
        return self.projection.matrices()

    def on_validation_epoch_start(self) -> None:
        self.rows: dict[int, list[tuple[int, int, float]]] = {}  # by split: window, predicted tokens, nats

    def validation_step(self, batch: dict[str, Tensor], index: int, dataloader_idx: int = 0) -> dict[str, Any] | None:
        """Note each window's loss; return every ``state_stride``-th state of the first dev split, calibrated.

        The states of the layers before the last are returned as they are.
        """
        ids, kept = batch["ids"], []
        masked = self._mask_alike(batch["index"], ids) if self.language.objective == "masked" else None
        states, labels, layers = self.compute_states(ids, masked, every_layer=dataloader_idx == 0)
        h = self.chain(states, IDENTITY_POOLER)[0]
        counts = [len(ids[0]) - 1] * len(ids) if masked is None else masked.sum(1).tolist()
        for place, own, targets in zip(batch["index"].tolist(), h.split(counts), labels.split(counts), strict=True):
            nats = float(self.projection.sum_losses(own, targets).double())
            self.rows.setdefault(dataloader_idx, []).append((place, len(targets), nats))
            kept.append(own)
        if dataloader_idx:
            return None
        measured = {"embedding": torch.cat(kept), **{f"layer_{place}": states for place, states in enumerate(layers)}}
        return {name: states[:: self.state_stride].float() for name, states in measured.items()}

    def _mask_alike(self, index: Tensor, ids: Tensor) -> Tensor:
        """Choose the masked tokens of dev windows [B, T]: the same ones in every epoch and run."""
        draws = [np.random.default_rng(place).random(ids.shape[1]) for place in index.tolist()]
        return self._choose_masked(torch.from_numpy(np.stack(draws)).to(ids.device))

    def _choose_masked(self, draws: Tensor) -> Tensor:
        """Choose masked tokens by random numbers [B, T]; a window without any would teach nothing."""
        masked = draws < self.language.masked_share
        masked[:, 0] |= ~masked.any(1)
        return masked

    def on_validation_epoch_end(self) -> None:
        """Score each split from the losses of its windows.

        A row of the predictions is a window: its label is the number of predicted tokens, and both its prediction and
        its only logit are the sum of their losses in nats.
        """
        self._raise_if_non_finite()
        scores, outputs = {}, {}
        for position, split in enumerate(self.cfg.task.evaluated):
            windows = zip(*sorted(self.rows[position]), strict=True)  # places, predicted tokens, losses
            _, tokens, nats = (np.array(column, np.float64) for column in windows)
            if not np.isfinite(nats).all():
                step = self.global_step
                raise RunFailure("non_finite_output", f"the dev loss is not finite after step {step}", step)
            metrics = kind_of(self.cfg.task).score(self.cfg.task, tokens, nats)
            loss = float(nats.sum() / tokens.sum())
            scores[split] = {**metrics, "loss": loss, "constant_predictor": is_constant(nats)}
            outputs[split] = {"label": tokens, "prediction": nats, "logits": nats[:, None]}
        self.rows = {}
        self.record_epoch(scores, outputs)
