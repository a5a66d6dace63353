"""Measure isotropy during training: a Lightning callback that logs it at every validation."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import hydra
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities import move_data_to_device
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor

from isobench.common.errors import doing, refuse
from isobench.common.linalg import PIECE_ROWS
from isobench.config.classes import locate_class
from isobench.config.schema import Config
from isobench.metrics.accumulator import class_summary, isotropy_summary
from isobench.metrics.partition import DIRECTION_KINDS, DirectionKind
from isobench.tasks.kind import kind_of
from isobench.training import tracking

DEFAULT_CONVENTIONS: tuple[DirectionKind, ...] = ("eigenvectors", "as_printed")
LOGGED_K_VALUES = (1, 2, 3, 5, 10, 20, 50)  # k of the explained variances that are logged one by one


class IsotropyMonitor(Callback):
    """Log the isotropy of the dev set's calibrated embeddings, of the head and of the vocabulary at every validation.

    Works with any LightningModule whose ``validation_step`` returns a dict with ``embedding`` [B, d], and perhaps the
    states of other layers as ``layer_0`` [B, d] and so on, and whose ``matrices()`` returns name -> function that
    returns the matrix, [V, d]. Matrices that are one tied parameter are measured once, under the first name.

    If the module has a dict ``isotropy_before``, the same is measured before the first step, the embeddings only of
    modules with a function ``embed`` of a batch. What is constant for a matrix of two rows is recorded, not logged.

    Logged names are ``isotropy/<embedding|layer_0|...|head|vocabulary>/<measure>``, with the measures ``ev1``,
    ``ev2``, ..., ``i1``, ``i2``, ``isoscore``, ``average_cosine``, ``effective_rank``, ``mean_ratio`` and
    ``coordinate_share``. For the head, I1 and I2 are logged in the other conventions too, under names such as
    ``i1_printed``. Where the batches of validation are mappings with classes under ``labels``, whole numbers [B], the
    embeddings also have ``silhouette`` and ``threshold_accuracy``. W&B also gets a chart of every epoch's EV_k curve,
    ``isotropy/<...>/ev_curve``. If the module has a dict ``observed``, the measures are stored in it as ``isotropy``
    and the curves as ``explained_variance``.

    Args:
        curve: largest k of the EV_k curve.
        conventions: directions of I1 and I2 (``partition_isotropy``): the first for every matrix, all for the head.
    """

    def __init__(self, curve: int = 50, conventions: Sequence[DirectionKind] = DEFAULT_CONVENTIONS) -> None:
        self.curve, self.conventions = curve, conventions
        self.curves: dict[str, list[list[float]]] = {}
        self.epochs: list[int] = []  # of the curves, counted from 1
        self._batches: dict[str, list[Tensor]] = {}  # by the name of the vectors
        self._classes: list[Tensor] = []

    def state_dict(self) -> dict[str, Any]:
        return {"curves": self.curves, "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.curves, self.epochs = state["curves"], state["epochs"]

    def on_validation_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        self._batches, self._classes = {}, []

    def on_validation_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, index: int, dataloader_idx: int = 0
    ) -> None:
        if dataloader_idx == 0 and isinstance(outputs, dict) and "embedding" in outputs:
            for name in outputs:
                if name == "embedding" or name.startswith("layer_"):
                    self._batches.setdefault(name, []).append(outputs[name].detach())
            self._classes.append(_extract_classes(batch, outputs["embedding"]))

    @torch.no_grad()
    def on_validation_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Measure the vectors that this validation collected, and the matrices; log, chart and store the measures."""
        if trainer.sanity_checking:
            return
        vectors = {name: gather_batches(batches) for name, batches in self._batches.items()}
        classes = gather_batches(self._classes)
        self._batches, self._classes = {}, []
        self.epochs.append(trainer.current_epoch + 1)
        measures, curves, logged = self._measure(module, vectors, classes)
        for name, curve in curves.items():
            self.curves.setdefault(name, []).append(curve)
        if isinstance(observed := getattr(module, "observed", None), dict):  # then they enter the record
            observed["isotropy"], observed["explained_variance"] = measures, curves
        module.log_dict({f"isotropy/{name}": measures[name] for name in logged})
        charts = {f"isotropy/{name}/ev_curve": self.curves[name] for name in curves if f"{name}/ev1" in logged}
        tracking.log_curves(trainer.logger, charts, self.epochs)

    @torch.no_grad()
    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Measure before the first step, and draw no random number; a run that goes on has done so."""
        is_wanted = isinstance(getattr(module, "isotropy_before", None), dict) and trainer.val_dataloaders
        if trainer.global_step or not is_wanted or module.isotropy_before:
            return
        modes = [(part, part.training) for part in module.modules()]
        embeddings, classes = [], []
        with isolate_rng(), trainer.precision_plugin.val_step_context():
            module.eval()
            loaders = trainer.val_dataloaders
            first = loaders[0] if isinstance(loaders, list | tuple) else loaders
            for batch in first if hasattr(module, "embed") else ():
                batch = move_data_to_device(batch, module.device)
                embeddings.append(module.embed(batch).float())
                classes.append(_extract_classes(batch, embeddings[-1]))
        embeddings, classes = gather_batches(embeddings), gather_batches(classes)
        for part, mode in modes:
            part.training = mode
        vectors = {"embedding": embeddings} if embeddings else {}
        module.isotropy_before, _, logged = self._measure(module, vectors, classes)
        if trainer.logger:
            before = {f"isotropy/{name}": module.isotropy_before[name] for name in logged}
            trainer.logger.log_metrics(before, step=0)

    def _measure(
        self, module: LightningModule, vectors: dict[str, list[Tensor]], classes: list[Tensor]
    ) -> tuple[dict[str, float], dict[str, list[float]], list[str]]:
        """Return all measures, the EV_k curve of each matrix, and the names of the measures that are logged."""
        matrices = {name: get() for name, get in module.matrices().items()}
        first = {id(matrix): name for name, matrix in reversed(matrices.items())}  # tied matrices share their id
        untied = {name: matrix.detach() for name, matrix in matrices.items() if first[id(matrix)] == name}
        measures: dict[str, float] = {}
        curves: dict[str, list[float]] = {}
        constant: list[str] = []
        for name, batches in {**vectors, **{name: m.split(PIECE_ROWS) for name, m in untied.items()}}.items():
            kinds = self.conventions if name == "head" else self.conventions[:1]
            summary = isotropy_summary(partial(iter, batches), range(1, self.curve + 1), kinds)
            # k above the width is left out
            curves[name] = curve = [summary.pop(f"ev{k}") for k in range(1, self.curve + 1) if f"ev{k}" in summary]
            measures |= {f"{name}/ev{k}": curve[k - 1] for k in LOGGED_K_VALUES if k <= len(curve)}
            measures |= {f"{name}/{key.replace('as_printed', 'printed')}": value for key, value in summary.items()}
            constant += [f"{name}/{key}" for key in tracking.CONSTANT_MEASURES.get(sum(map(len, batches)), ())]
        embeddings = vectors.get("embedding", [])
        if embeddings and sum(map(len, classes)) == sum(map(len, embeddings)):
            by_class = class_summary(torch.cat(embeddings), torch.cat(classes))
            measures |= {f"embedding/{key}": value for key, value in by_class.items()}
        return measures, curves, [name for name in measures if not name.startswith(tuple(constant))]


def _extract_classes(batch: Any, embeddings: Tensor) -> Tensor:
    """Return a batch's classes, [B], one for each of its embeddings [B, d]; an empty tensor if it has none.

    Scores of a regression are not whole numbers, and the labels of translation are sequences of tokens.
    """
    labels = batch.get("labels") if isinstance(batch, Mapping) else None
    if isinstance(labels, Tensor) and not labels.is_floating_point() and labels.shape == embeddings.shape[:1]:
        return labels
    return torch.empty(0, dtype=torch.long, device=embeddings.device)


def gather_batches(batches: Sequence[Tensor]) -> list[Tensor]:
    """Collect the batches of all DDP processes, in the order of the processes."""
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return list(batches)
    by_process: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(by_process, [batch.cpu() for batch in batches])
    return [batch for process_batches in by_process for batch in process_batches]


def check_monitors(cfg: Config) -> None:
    """Import the class of each of ``monitors``, and make none; UserError if one is no callback."""
    for name, settings in cfg.monitors.items():
        with doing(f"monitors.{name}"):
            locate_class(settings["_target_"], Callback)


def build_monitors(cfg: Config) -> list[Callback]:
    """Make the callbacks that measure: isotropy, and ``monitors``, one of which may replace ``isotropy``."""
    conventions = DIRECTION_KINDS if kind_of(cfg.task).predicts_words else DEFAULT_CONVENTIONS
    callbacks: dict[str, Callback] = {"isotropy": IsotropyMonitor(conventions=conventions)}
    for name, settings in cfg.monitors.items():
        with doing(f"monitors.{name}"):
            monitor: Callback = hydra.utils.instantiate(settings, _convert_="all")
            refuse((not isinstance(monitor, Callback), f"monitors.{name}: _target_ makes no Lightning Callback"))
        is_second = any(monitor.state_key == other.state_key for key, other in callbacks.items() if key != name)
        refuse((is_second, f"monitors.{name}: another callback has the same state_key; give it one of its own"))
        callbacks[name] = monitor
    return list(callbacks.values())
