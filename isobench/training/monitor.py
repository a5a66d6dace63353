"""Isotropy during training: a Lightning callback that measures and logs it at every validation."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import hydra
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from isobench.common.errors import UserError
from isobench.common.linalg import PIECE_ROWS
from isobench.config.schema import Config
from isobench.metrics.partition import DIRECTION_KINDS, DirectionKind
from isobench.metrics.summary import isotropy_summary
from isobench.training import tracking

DEFAULT_CONVENTIONS: tuple[DirectionKind, ...] = ("eigenvectors", "as_printed")
LOGGED_K_VALUES = (1, 2, 3, 5, 10, 20, 50)  # k of the explained variances that are logged one by one


class IsotropyMonitor(Callback):
    """Logs the isotropy of the validation set's embeddings after calibration, of the head and of the vocabulary.

    For any LightningModule whose ``validation_step`` returns a dict with ``embedding`` [B, d], and that has
    ``matrices()``: name -> function that gives the matrix [V, d]. Names of what is logged:
    ``isotropy/<embedding|head|vocabulary>/<ev1|...|i1|i2|isoscore|average_cosine|effective_rank|mean_ratio>``; to
    W&B also the EV_k curve of every epoch, ``isotropy/<...>/ev_curve``. If the module has a dict ``observed``, the
    measures are put there as ``isotropy`` and the curves as ``explained_variance``. Of the head also I1 and I2 in
    other conventions, under names such as ``i1_printed``: as the isotropy-calibration paper prints them. Matrices
    that are one parameter are measured once, under the first name.

    Args:
        curve: largest k of the EV_k curve.
        conventions: of I1 and I2 (``partition_isotropy``); all matrices have the first, the head the others too.
    """

    def __init__(self, curve: int = 50, conventions: Sequence[DirectionKind] = DEFAULT_CONVENTIONS) -> None:
        self.curve, self.conventions = curve, conventions
        self.curves: dict[str, list[list[float]]] = {}
        self._batches: list[Tensor] = []

    def state_dict(self) -> dict[str, Any]:
        """Called by Lightning as it saves a checkpoint."""
        return {"curves": self.curves}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Called by Lightning as it resumes."""
        self.curves = state["curves"]

    def on_validation_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Start anew."""
        self._batches = []

    def on_validation_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, index: int, dataloader_idx: int = 0
    ) -> None:
        """Keep the batch's embeddings: I1 and I2 want to see them twice."""
        if isinstance(outputs, dict) and "embedding" in outputs:
            self._batches.append(outputs["embedding"].detach())

    @torch.no_grad()
    def on_validation_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Measure, log."""
        matrices = {name: get() for name, get in module.matrices().items()}
        first = {id(matrix): name for name, matrix in reversed(matrices.items())}  # tied ones are measured once
        pieces = {
            name: matrix.detach().split(PIECE_ROWS) for name, matrix in matrices.items() if first[id(matrix)] == name
        }
        if embeddings := gather_batches(self._batches):
            pieces = {"embedding": embeddings, **pieces}
        self._batches = []
        measures: dict[str, float] = {}
        for name, batches in pieces.items():
            kinds = self.conventions if name == "head" else self.conventions[:1]
            found = isotropy_summary(partial(iter, batches), range(1, self.curve + 1), kinds)
            curve = [found.pop(f"ev{k}") for k in range(1, self.curve + 1) if f"ev{k}" in found]
            self.curves.setdefault(name, []).append(curve)
            measures |= {f"{name}/ev{k}": curve[k - 1] for k in LOGGED_K_VALUES if k <= len(curve)}
            measures |= {f"{name}/{key.replace('as_printed', 'printed')}": value for key, value in found.items()}
        if isinstance(observed := getattr(module, "observed", None), dict):
            observed["isotropy"] = measures
            observed["explained_variance"] = {name: self.curves[name][-1] for name in pieces}
        module.log_dict({f"isotropy/{name}": value for name, value in measures.items()})
        if not trainer.sanity_checking:
            tracking.log_curves(trainer.logger, {f"isotropy/{n}/ev_curve": self.curves[n] for n in pieces})


def gather_batches(batches: Sequence[Tensor]) -> list[Tensor]:
    """The batches of every process under DDP, in the processes' order; one process's own as they are."""
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return list(batches)
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, [batch.cpu() for batch in batches])
    return [batch for part in found for batch in part]


def build_monitors(cfg: Config) -> list[Callback]:
    """The callbacks that measure: of isotropy always (``monitors.isotropy`` replaces it), and what ``monitors`` adds.

    Raises:
        UserError: something that is no Lightning callback, or can't be made.
    """
    found: dict[str, Callback] = {
        "isotropy": IsotropyMonitor(conventions=DIRECTION_KINDS if cfg.task.generation else DEFAULT_CONVENTIONS)
    }
    for name, settings in cfg.monitors.items():
        try:
            monitor = hydra.utils.instantiate(settings, _convert_="all")
        except hydra.errors.InstantiationException as error:
            raise UserError(f"monitors.{name}: {error.__cause__ or error}") from error
        if not isinstance(monitor, Callback):
            raise UserError(f"monitors.{name}: _target_ must name a Lightning Callback")
        if any(monitor.state_key == other.state_key for key, other in found.items() if key != name):
            raise UserError(f"monitors.{name}: there is such a callback already; one of a kind can be resumed")
        found[name] = monitor
    return list(found.values())
