"""Measure how far a classifier moves in fine-tuning, and which components its logits come from (IsoBN, Fig. 2, 3)."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader

from isobench.common.errors import UserError
from isobench.common.linalg import eigh, gram, row_mean, to_float64


class ClassifierDrift(Callback):
    """Measure the classifier's drift and its logits' variance before training and at every validation.

    The module's ``observed["drift"]`` gets ``start`` and ``now``. Each has ``cosine`` and ``l2``, the classifier's
    cosine and distance to its initialisation within the subspace of the top components, ``initial_norm``, the norm of
    the initialisation there, and ``fine_tuned`` and ``optimal``, the top k components' share of the variance of its
    logits and of an optimal classifier's. A regression's head drifts as well, but has no optimal classifier:
    ``optimal`` is then empty.

    Components are those of the training set's embeddings by the encoder of that moment, in evaluation mode. Nothing
    is random, so that the run's random streams stay the same.

    Args:
        components: dimensions of the subspace (10 in the paper).
        top: for each of these k, the share of the top k components is measured (1, 5, 30 in the paper).

    Raises:
        ValueError: a number is not a whole number above 0.
    """

    def __init__(self, components: int, top: list[int]) -> None:
        for name, values in (("components", [components]), ("top", top)):
            if not isinstance(values, Sequence) or not values or any(type(x) is not int or x < 1 for x in values):
                raise ValueError(f"{name}={values} must have whole numbers, at least 1 each")
        self.components, self.top = components, top
        self.initial: Tensor | None = None
        self.start: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"initial": self.initial, "start": self.start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.initial, self.start = state["initial"], state["start"]

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Keep the initial classifier and measure it, unless the run was resumed.

        Raises:
            UserError: the task has no classifier, or the training set only one class.
        """
        if not hasattr(module, "regression"):
            raise UserError("monitors.drift measures a classifier and this task has none: choose a task of classes")
        loader: Any = trainer.train_dataloader
        if not module.regression and len(np.unique(loader.dataset.labels)) < 2:
            raise UserError("monitors.drift needs examples of two classes or more: take more (task.train_samples)")
        if self.initial is None:
            self.initial = to_float64(module.head.weight).cpu().clone()
            modes = [(part, part.training) for part in module.modules()]
            module.eval()
            self.start = self.measure(trainer, module)
            for part, training in modes:
                part.training = training

    def on_validation_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        if self.initial is not None:
            module.observed["drift"] = {"start": self.start, "now": self.measure(trainer, module)}

    @torch.no_grad()
    def measure(self, trainer: Trainer, module: LightningModule) -> dict[str, Any]:
        """Measure drift and shares of the logits' variance with the present encoder and classifier."""
        h, labels = embed_training_set(trainer, module)
        weight = to_float64(module.head.weight).cpu()
        values, vectors = eigh(gram(h, row_mean(h)) / len(h))
        values, vectors = values.flip(0), vectors.flip(1)  # descending
        assert self.initial is not None
        drift = measure_drift(weight, self.initial, vectors[:, : self.components])
        classifiers = {"fine_tuned": weight}
        if not module.regression:
            classifiers["optimal"] = torch.from_numpy(fit_optimal_classifier(h.numpy(), labels))
        shares = {
            kind: dict(zip(map(str, self.top), logit_variance_shares(matrix, values, vectors, self.top), strict=True))
            for kind, matrix in classifiers.items()
        }
        return {**drift, "optimal": {}, **shares}


def measure_drift(weight: Tensor, initial: Tensor, subspace: Tensor) -> dict[str, float]:
    """Compare two classifiers [c, d] within a subspace that orthonormal columns [d, k] span.

    Returns:
        Cosine and L2 distance of the projected rows, and the initial ones' norm, each the mean over classes.
    """
    now, then = weight @ subspace, initial @ subspace  # (c, k)
    cosine = torch.nn.functional.cosine_similarity(now, then, dim=1, eps=1e-300)
    norms = {"l2": now - then, "initial_norm": then}
    return {"cosine": cosine.mean().item()} | {
        name: torch.linalg.vector_norm(rows, dim=1).mean().item() for name, rows in norms.items()
    }


def logit_variance_shares(weight: Tensor, values: Tensor, vectors: Tensor, top: Iterable[int]) -> list[float]:
    """Compute the share of the logits' variance that comes from the top k components, mean over classes.

    Var_i = w_i (W^T v_i)^2 with w_i, v_i the i-th eigenvalue and eigenvector of Cov(h) (IsoBN, "Dominating Principle
    Components"). ``weight`` is the classifier [c, d], ``values`` [d] are descending, ``vectors`` [d, d] are columns,
    and ``top`` has each k to return a share for.
    """
    variance = values.clamp(min=0) * (weight @ vectors) ** 2  # (c, d)
    portions = variance / variance.sum(1, keepdim=True)
    return [portions[:, :k].sum(1).mean().item() for k in top]


def fit_optimal_classifier(h: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Fit scikit-learn's logistic regression to embeddings [N, d]; return weights [c, d], [1, d] for two classes."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 1,000 steps are ten times the default
        return LogisticRegression(max_iter=1000).fit(h, labels).coef_


def embed_training_set(trainer: Trainer, module: LightningModule) -> tuple[Tensor, np.ndarray]:
    """Compute the training set's calibrated embeddings, [N, d] float64 on the CPU; returns labels, [N], too."""
    loader: Any = trainer.train_dataloader
    tokens = loader.dataset
    order = np.argsort(tokens.lengths, kind="stable").tolist()
    batches = DataLoader(tokens, 64, sampler=order, collate_fn=loader.collate_fn, generator=torch.Generator())
    embeddings = [
        to_float64(module.embed(module.transfer_batch_to_device(batch, module.device, 0))).cpu() for batch in batches
    ]
    h = torch.empty(len(tokens), embeddings[0].shape[1], dtype=torch.float64)
    h[order] = torch.cat(embeddings)
    return h, tokens.labels
