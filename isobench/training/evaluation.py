"""Decide after which epochs a run is evaluated on the dev set, and when it stops for lack of a better score."""

import math
from typing import Any

from pytorch_lightning.callbacks import Callback, EarlyStopping

from isobench.config.schema import LAST_EPOCH, Config


class EvaluationSchedule(Callback):
    """Let the trainer evaluate after every so many epochs, and always after the last one.

    Lightning's own ``check_val_every_n_epoch`` can leave out the last epoch, so it is set anew for each epoch.

    Args:
        every: ``evaluation.every`` of the config: a number of epochs, or ``last``.
        epochs: epochs of the whole run.
    """

    def __init__(self, every: Any, epochs: int) -> None:
        self.every, self.epochs = epochs if every == LAST_EPOCH else every, epochs

    def includes(self, epoch: int) -> bool:
        """Return whether the run is evaluated after this epoch, counted from 1."""
        return epoch % self.every == 0 or epoch == self.epochs

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Set the trainer for the epoch that a resumed run goes on with."""
        self._set_trainer(trainer)

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        """Set the trainer for the epoch that begins."""
        self._set_trainer(trainer)

    def _set_trainer(self, trainer: Any) -> None:
        never = self.epochs + 1  # no epoch's number can be divided by it
        trainer.check_val_every_n_epoch = 1 if self.includes(trainer.current_epoch + 1) else never


def make_early_stopping(cfg: Config) -> list[Callback]:
    """Make the callback that stops the run by ``optimization.patience``; none if that is null.

    It stops at the first evaluation that comes ``patience`` epochs or more after the best one.
    """
    if cfg.optimization.patience is None:
        return []
    evaluations = math.ceil(cfg.optimization.patience / cfg.evaluation.every)
    name = f"dev/{cfg.task.primary}"
    return [EarlyStopping(name, patience=evaluations, mode="max", check_on_train_epoch_end=False)]
