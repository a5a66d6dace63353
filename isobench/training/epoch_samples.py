"""Give methods that ask for it a sample of the current model's vectors at the start of every epoch."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities import move_data_to_device
from torch import Tensor

from isobench.calibration.base import Calibration
from isobench.data.batches.loaders import Loaders
from isobench.data.batches.pairs import PairLoaders
from isobench.data.batches.tokens import list_epoch_order
from isobench.training.classifier import Classifier
from isobench.training.seq2seq import IDENTITY_POOLER, Seq2Seq


class EpochSamples(Callback):
    """Call ``prepare`` of the methods with an ``epoch_sample`` at the start of every epoch.

    The vectors come from the model as it is then, in evaluation mode: dropout draws no random numbers, and the order
    of the training examples stays. A run that goes on within an epoch takes no new sample: what a method keeps of it
    is in the checkpoint.

    Args:
        loaders: the run's data.
    """

    def __init__(self, loaders: Loaders | PairLoaders) -> None:
        self.loaders = loaders

    @torch.no_grad()
    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        """Prepare the methods. Lightning does not call this when a run goes on within an epoch."""
        pooler = module.pooler if isinstance(module, Classifier) else IDENTITY_POOLER
        for position, calibration in enumerate(module.chain):
            if calibration.epoch_sample:
                module.eval()
                vectors = self._compute_vectors(module, calibration, trainer.current_epoch)
                module.chain.prepare(position, vectors, pooler)
                module.train()

    def _compute_vectors(
        self, module: Classifier | Seq2Seq, calibration: Calibration, epoch: int
    ) -> Iterator[Tensor]:
        """Yield the vectors that a method reads of a sample of the training examples, batches [B, d]."""
        counts = count_vectors(module, calibration, self.loaders)
        order = list_epoch_order(len(counts), self.loaders.sampler.seed, epoch)
        chosen = take_as_many(order, counts, calibration.epoch_sample or 0)
        tokens: Any = self.loaders.train_tokens
        batch_size = module.cfg.trainer.eval_batch_size
        for batch in self.loaders.make_length_sorted_loader(tokens, batch_size, chosen=chosen):
            batch = move_data_to_device(batch, module.device)
            if isinstance(module, Seq2Seq):
                yield module.compute_decoder_states(batch)[0]
            elif calibration.reads_token_states:
                yield module.encode_with_tokens(batch)[1]
            else:
                yield module.encode(batch)


def count_vectors(
    module: Classifier | Seq2Seq, calibration: Calibration, loaders: Loaders | PairLoaders
) -> np.ndarray:
    """Count the vectors that a method reads of each training example, [N]."""
    if isinstance(loaders, PairLoaders):
        return loaders.train_tokens.targets.lengths
    lengths = loaders.train_tokens.lengths
    if not calibration.reads_token_states:
        return np.ones_like(lengths)
    layers: int = module.encoder.model.config.num_hidden_layers  # type: ignore[union-attr, assignment]
    return lengths * layers


def take_as_many(order: np.ndarray, counts: np.ndarray, limit: int) -> np.ndarray:
    """Take the first examples of an order whose counts add up to at most ``limit``, but at least one example.

    Args:
        order: indices of the examples, [N].
        counts: of each example, [N].
        limit: of the counts' sum.
    """
    number = int(np.searchsorted(np.cumsum(counts[order]), limit, side="right"))
    return order[: max(number, 1)]
