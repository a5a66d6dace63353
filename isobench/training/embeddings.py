"""Cache the pretrained encoder's vectors of a training set on disk: computed once, then read memory-mapped."""

from pathlib import Path

import filelock
import numpy as np
import torch
from torch import Tensor

from isobench.common.checksums import print_remaking, require_checksum, with_checksum
from isobench.common.files import (
    cache_dir,
    make_cache_error,
    sha256_json,
    shorten_digest,
    write_atomic,
)
from isobench.common.progress import track_progress
from isobench.config.schema import Config
from isobench.data.batches.loaders import Loaders, name_device, uses_gpu
from isobench.models.encoders import LoadedEncoder
from isobench.runs.identity import Identity

VERSION = 3  # of the cached files' content, part of their name: raise it when the vectors change
SENTENCES_PER_BATCH = 64  # sentences in one call of the encoder


def load_pretrained_embeddings(
    cfg: Config, identity: Identity, loaders: Loaders, loaded: LoadedEncoder, progress_bar: bool
) -> Tensor:
    """Return the training set's vectors before the pooler, [N, d] float32, memory-mapped, in the data's order.

    They are read from ``data.cache``, or computed and kept there. Their file name is a hash of all that decides them:
    data, weights, tokenizer, settings, torch's version and the device.

    Raises:
        StorageError: the cache can't be written.
    """
    e = cfg.encoder
    settings = [
        e.version,
        loaded.encoder.pooling,
        e.layer,
        e.token_type_ids,
        loaded.encoder.first_token_only,
        e.compile,
        e.packing,
    ]
    key = sha256_json(
        [
            VERSION,
            torch.__version__,
            loaders.train_fingerprint,
            identity.encoder,
            settings,
            loaded.init_seed,
            name_device(cfg),
        ]
    )
    name = f"{cfg.task.name}-{cfg.encoder.name}-{shorten_digest(key)}.npy"
    file = cache_dir(cfg.data.cache) / "embeddings" / name
    shape = (len(loaders.train.dataset), loaded.dim)  # type: ignore[arg-type]
    vectors = _read_cached(file, shape)
    if vectors is not None:
        return vectors
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{file}.lock"):  # of runs that start together, one computes and the others wait
            if (vectors := _read_cached(file, shape)) is None:
                if file.exists():
                    print_remaking(file)
                write_atomic(
                    file,
                    with_checksum(
                        lambda temporary: _write_embeddings(temporary, shape, cfg, loaders, loaded, progress_bar),
                        file.name,
                    ),
                )
                vectors = _read_cached(file, shape)
    except OSError as error:
        raise make_cache_error(error, file.parent) from error
    assert vectors is not None
    return vectors


def _read_cached(file: Path, shape: tuple[int, int]) -> Tensor | None:
    """Read cached vectors; None if the file is absent, damaged or of another shape or type."""
    try:
        require_checksum(file)
        array = np.load(file, mmap_mode="c")
    except (OSError, ValueError, EOFError):
        return None
    return torch.from_numpy(array) if array.shape == shape and array.dtype == np.float32 else None


@torch.no_grad()
def _write_embeddings(
    file: Path, shape: tuple[int, int], cfg: Config, loaders: Loaders, loaded: LoadedEncoder, progress_bar: bool
) -> None:
    """Compute the vectors and write them as a .npy file, each row at its sentence's place in the data.

    Batches hold sentences of similar length, to pad little. Rows are written at once, so that memory stays small.
    """
    device = torch.device("cuda" if uses_gpu(cfg) else "cpu")
    encoder = loaded.encoder.eval().to(device)
    batches = loaders.make_length_sorted_loader(loaders.train.dataset, SENTENCES_PER_BATCH)  # type: ignore[arg-type]
    with file.open("wb") as stream:
        np.lib.format.write_array_header_2_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
        start = stream.tell()
        for batch in track_progress(batches, "pretrained embeddings, once", progress_bar):
            (chunk,) = batch["chunks"]
            vectors = encoder(**{name: tensor.to(device) for name, tensor in chunk.items()})  # (b, d)
            rows = vectors[batch["restore"].to(device)].float().cpu().numpy()
            for index, row in zip(batch["index"].tolist(), rows, strict=True):
                stream.seek(start + row.nbytes * index)
                stream.write(row.astype("<f4").tobytes())
