"""Show the training set's vectors to methods that ask for them: once before training, or at the start of every epoch.

The pretrained encoder's vectors are computed once, kept on disk, and read memory-mapped.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities import move_data_to_device
from torch import Tensor, nn

from isobench.calibration.base import Calibration
from isobench.common.files import explain_cache_errors, print_remaking, require_checksum, sha256_json, write_cached
from isobench.common.progress import track_progress
from isobench.config.schema import Config
from isobench.data.batches.loaders import name_device, uses_gpu
from isobench.data.batches.tokens import list_epoch_order
from isobench.data.cache import name_cached_file
from isobench.models.encoders import LoadedEncoder
from isobench.runs.identity import Identity
from isobench.training.fine_tuned import FineTuningModule

VERSION = 3  # of the cached files' content, part of their name: raise it when the vectors change
SENTENCES_PER_BATCH = 64  # sentences in one call of the encoder


def load_pretrained_embeddings(cfg: Config, identity: Identity, loaders: Any, loaded: LoadedEncoder) -> Tensor:
    """Return the training set's vectors before the pooler, [N, d] float32, memory-mapped, in the data's order.

    They are read from ``data.cache``, or computed and kept there under a hash of all that decides them.
    """
    e, encoder = cfg.encoder, loaded.encoder
    settings = [encoder.pooling, e.layer, e.token_type_ids, encoder.first_token_only]
    decisive = [VERSION, torch.__version__, loaders.train_fingerprint, identity.encoder, settings, loaded.init_seed]
    key = sha256_json([*decisive, name_device(cfg)])
    file = name_cached_file(cfg.data.cache, "embeddings", f"{cfg.task.name}-{cfg.encoder.name}", key, "npy")
    shape = (len(loaders.train_tokens), loaded.dim)

    vectors = _read_cached(file, shape)
    if vectors is not None:
        return vectors
    with explain_cache_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{file}.lock"):  # of runs that start together, one computes and the others wait
            if (vectors := _read_cached(file, shape)) is None:
                if file.exists():
                    print_remaking(file)
                with write_cached(file) as temporary:
                    _write_embeddings(temporary, shape, cfg, loaders, loaded)
                vectors = _read_cached(file, shape)
    assert vectors is not None
    return vectors


def _read_cached(file: Path, shape: tuple[int, int]) -> Tensor | None:
    try:
        require_checksum(file)
        array = np.load(file, mmap_mode="c")
    except (OSError, ValueError, EOFError):
        return None
    return torch.from_numpy(array) if array.shape == shape and array.dtype == np.float32 else None


@torch.no_grad()
def _write_embeddings(file: Path, shape: tuple[int, int], cfg: Config, loaders: Any, loaded: LoadedEncoder) -> None:
    """Compute the vectors and write them as a .npy file, each row at its sentence's place in the data.

    Batches hold sentences of similar length, to pad little. Rows are written at once, so that memory stays small.
    """
    device = torch.device("cuda" if uses_gpu(cfg) else "cpu")
    encoder = loaded.encoder.eval().to(device)
    batches = loaders.make_length_sorted_loader(loaders.train_tokens, SENTENCES_PER_BATCH)
    with file.open("wb") as stream:  # no memory map: where a disk is full, that would kill the process
        np.lib.format.write_array_header_2_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
        start = stream.tell()
        for batch in track_progress(batches, "pretrained embeddings, once"):
            (chunk,) = batch["chunks"]
            vectors = encoder(**move_data_to_device(chunk, device))  # (b, d)
            rows = vectors[batch["restore"].to(device)].float().cpu().numpy()
            for index, row in zip(batch["index"].tolist(), rows, strict=True):
                stream.seek(start + row.nbytes * index)
                stream.write(row.astype("<f4").tobytes())


@torch.no_grad()
def iterate_vectors(module: FineTuningModule, loaders: Any) -> Iterator[Tensor]:
    """Yield the training set's vectors as the module computes them now, in batches [n, d]."""
    batches = loaders.make_length_sorted_loader(loaders.train_tokens, module.cfg.trainer.eval_batch_size)
    for batch in track_progress(batches, "vectors of the training set"):
        yield module.compute_vectors(move_data_to_device(batch, module.device))


class EpochSamples(Callback):
    """Call ``prepare`` of the methods with an ``epoch_sample`` at the start of every epoch.

    The vectors come from the model as it is then, in evaluation mode: dropout draws no random numbers, and the order
    of the training examples stays. A run that goes on within an epoch takes no new sample (Lightning doesn't call the
    hook): what a method keeps of it is in the checkpoint.
    """

    def __init__(self, loaders: Any) -> None:
        self.loaders = loaders

    @torch.no_grad()
    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        pooler = getattr(module, "pooler", nn.Identity())
        for position, calibration in enumerate(module.chain):
            if calibration.epoch_sample:
                module.eval()
                vectors = self._compute_vectors(module, calibration, trainer.current_epoch)
                module.chain.prepare(position, vectors, pooler)
                module.train()

    def _compute_vectors(self, module: FineTuningModule, calibration: Calibration, epoch: int) -> Iterator[Tensor]:
        """Yield the vectors that a method reads of a sample of the training examples, batches [B, d]."""
        tokens, batch_size = self.loaders.train_tokens, module.cfg.trainer.eval_batch_size
        counts = module.count_vectors(tokens, calibration)
        order = list_epoch_order(len(counts), self.loaders.sampler.seed, epoch)
        chosen = take_as_many(order, counts, calibration.epoch_sample or 0)
        for batch in self.loaders.make_length_sorted_loader(tokens, batch_size, chosen=chosen):
            yield module.compute_vectors(move_data_to_device(batch, module.device), calibration)


def take_as_many(order: np.ndarray, counts: np.ndarray, limit: int) -> np.ndarray:
    """Take the first examples of an order [N] whose counts [N] add up to at most ``limit``, but at least one."""
    number = int(np.searchsorted(np.cumsum(counts[order]), limit, side="right"))
    return order[: max(number, 1)]
