"""The classifier and regressor of sentences: encoder, pooler, calibrations, dropout and a linear classifier."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isobench.calibration.base import Calibration
from isobench.calibration.chain import Chain
from isobench.common.errors import RunFailure
from isobench.config.schema import Config, Head
from isobench.kinds.classification.examples import count_outputs
from isobench.kinds.classification.export import write_classifier
from isobench.metrics.task import is_constant
from isobench.models.encoders import LoadedEncoder
from isobench.models.huggingface_head import HeadParts, build_huggingface_head
from isobench.tasks.kind import kind_of
from isobench.training.fine_tuned import FineTuningModule


class Classifier(FineTuningModule):
    """Classify sentences, or score them, by a linear classifier (``head``) on calibrated sentence embeddings."""

    def __init__(self, cfg: Config, loaded: LoadedEncoder, chain: Chain, total_steps: int) -> None:
        super().__init__(cfg, chain, total_steps)
        classes = count_outputs(cfg.task)
        self.regression = classes == 1
        self.encoder = loaded.encoder
        if chain.reads_token_states:
            self.encoder.compute_all_tokens()
        parts = _build_head(cfg.head, loaded, chain.out_dim, classes)
        self.pooler, self.dropout, self.head = parts.pooler, parts.dropout, parts.classifier

    def encode(self, batch: dict[str, Any]) -> Tensor:
        """Compute a batch's sentence vectors before the pooler, [B, d], in the order of its examples.

        The encoder reads the batch in chunks of like length (`isobench.data.batches.tokens.Collator`).
        """
        return torch.cat([self.encoder(**chunk) for chunk in batch["chunks"]])[batch["restore"]]

    def encode_with_tokens(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Compute what ``encode`` does, and the states of all tokens but padding in all layers, [M, d]."""
        vectors, states = zip(*(self.encoder.encode_with_tokens(**chunk) for chunk in batch["chunks"]), strict=True)
        return torch.cat(vectors)[batch["restore"]], torch.cat([layer for layers in states for layer in layers])

    def embed(self, batch: dict[str, Any]) -> Tensor:
        """Compute a batch's calibrated sentence embeddings, [B, d], as the head reads them."""
        return self.chain(self.encode(batch), self.pooler)[0]

    def count_vectors(self, tokens: Any, calibration: Calibration) -> np.ndarray:
        """Count one vector for each example, or those of all tokens in all layers."""
        if not calibration.reads_token_states:
            return np.ones_like(tokens.lengths)
        layers: int = self.encoder.model.config.num_hidden_layers  # type: ignore[union-attr, assignment]
        return tokens.lengths * layers

    def compute_vectors(self, batch: dict[str, Any], calibration: Calibration | None = None) -> Tensor:
        """Compute the sentence vectors, or the states of all tokens."""
        if calibration and calibration.reads_token_states:
            return self.encode_with_tokens(batch)[1]
        return self.encode(batch)

    def export(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        """Write encoder and head as transformers loads them."""
        return write_classifier(folder, self.cfg, self)

    def training_step(self, batch: dict[str, Any], index: int) -> Tensor:
        token_states = None
        if self.chain.reads_token_states:
            vectors, token_states = self.encode_with_tokens(batch)
        else:
            vectors = self.encode(batch)
        h, method_inputs = self.chain(vectors, self.pooler)
        loss = self.compute_task_loss(self.head(self.dropout(h)), batch["labels"])
        return self.compute_total_loss(loss, method_inputs, index, token_states)

    def matrices(self) -> dict[str, Callable[[], Tensor]]:
        """Return a function for each matrix by name: ``head`` [c, d], ``vocabulary`` [V, d]."""
        return {"head": lambda: self.head.weight, "vocabulary": self.encoder.vocabulary}

    def compute_task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute the cross-entropy of logits [B, c] with classes [B], or the mean squared error of scores [B, 1]."""
        logits = logits.float()
        if self.regression:
            return nn.functional.mse_loss(logits.squeeze(1), labels)
        return nn.functional.cross_entropy(logits, labels)

    def on_validation_epoch_start(self) -> None:
        self.collected_logits: dict[int, list[tuple[Tensor, ...]]] = {}

    def validation_step(self, batch: dict[str, Any], index: int, dataloader_idx: int = 0) -> dict[str, Tensor] | None:
        """Collect a batch's logits; return calibrated embeddings [B, d], of the first dev split, for the monitors."""
        h = self.embed(batch)
        logits = self.head(self.dropout(h)).float()
        self.collected_logits.setdefault(dataloader_idx, []).append((batch["index"], logits))
        return {"embedding": h.float()} if dataloader_idx == 0 else None

    def on_validation_epoch_end(self) -> None:
        self._raise_if_non_finite()
        task = self.cfg.task
        labels = [loader.dataset.labels for loader in self.trainer.val_dataloaders]
        scores, outputs = {}, {}
        for position, split in enumerate([*task.evaluated, *([task.test_split] if task.test_split else [])]):
            index, collected = map(torch.cat, zip(*self.collected_logits[position], strict=True))
            logits = collected[index.argsort()].cpu().numpy()  # [N, c], in the data's order
            if not np.isfinite(logits).all():
                step = self.global_step
                raise RunFailure("non_finite_output", f"logits are not finite after step {step}", step)
            predictions = logits[:, 0] if self.regression else logits.argmax(1)
            outputs[split] = {"label": labels[position], "prediction": predictions, "logits": logits}
            if split != task.test_split:
                metrics = kind_of(task).score(task, labels[position], predictions)
                scores[split] = {**metrics, "constant_predictor": is_constant(predictions)}
        self.collected_logits = {}
        self.record_epoch(scores, outputs)


def _build_head(head: Head, loaded: LoadedEncoder, dim: int, classes: int) -> HeadParts:
    """Build the head that reads a loaded encoder's vectors; its random weights come from torch's global generator.

    ``dim``: width of the calibrated vectors. ``classes``: 1 for a regression.
    """
    if head.name == "huggingface":
        return build_huggingface_head(loaded.config, loaded.pooler, classes)
    classifier = nn.Linear(dim, classes)
    dropout = nn.Dropout(loaded.dropout if head.dropout is None else head.dropout)
    return HeadParts(loaded.pooler, dropout, classifier)
