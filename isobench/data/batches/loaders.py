"""What the batches of every kind need: what they know of a model, the loaders, checks of tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from isobench.common.errors import UserError, refuse
from isobench.config.schema import Config
from isobench.data.batches.tokens import EpochSampler

ONE_CHUNK = 1 << 20  # a cost of one more encoder call, in tokens, at which a batch is never cut into chunks
MOST_UNKNOWN = 0.01  # share of unknown tokens above which a run's record has a warning


@dataclass(frozen=True)
class ModelInputs:
    """What batches need to know of a model.

    ``tokenizer``: a transformers tokenizer. ``fingerprint``: identifies what the tokenizer does, for cache keys.
    ``max_positions``: the model's longest input, in tokens. ``dim``: its width d. ``packed``: it reads a batch as one
    row of tokens without padding.
    """

    tokenizer: Any
    fingerprint: str
    max_positions: int
    dim: int
    packed: bool = False


class SplitLoaders:
    """The training and dev batches of a run, each split a data set with ``lengths`` [N] and ``collate``.

    ``train_tokens``, ``dev_tokens``: the data sets. ``sampler``: gives the order of the training examples.
    ``batch_size``: how many of them make a batch.
    """

    def __init__(
        self, cfg: Config, inputs: ModelInputs, splits: Mapping[str, Any], max_length: int, order_seed: int
    ) -> None:
        self.inputs, self.max_length = inputs, max_length
        self.sizes = {split: len(tokens) for split, tokens in splits.items()}
        train = self.train_tokens = splits[cfg.task.train_split]
        self.dev_tokens = [splits[split] for split in cfg.task.dev_splits]
        self.batch_size = cfg.optimization.batch_size
        self.train, self.sampler = make_training_loader(cfg, train, self.batch_size, order_seed, train.collate)
        size = cfg.trainer.eval_batch_size
        self.dev = [make_sorted_loader(cfg, own, own.lengths, size, own.collate) for own in self.dev_tokens]

    def describe_data(self) -> dict[str, Any]:
        """Return the record's entries on the data: counts of examples by split, and their length."""
        return {"examples": self.sizes, "max_length": self.max_length}


def make_training_loader(
    cfg: Config, dataset: Any, batch_size: int | None, order_seed: int, collator: Callable[[Any], Any]
) -> tuple[DataLoader, EpochSampler]:
    """Make the loader of training batches, and what orders them; with ``batch_size`` None each item is a batch.

    UserError if ``optimization.drop_last`` drops the only batch, because it has too few examples.
    """
    drops = cfg.optimization.drop_last and batch_size is not None
    advice = f"set optimization.batch_size to {len(dataset)} or less"
    refuse((drops and len(dataset) < (batch_size or 0), f"optimization.drop_last drops every batch: {advice}"))
    sampler = EpochSampler(len(dataset), order_seed)
    loader = DataLoader(
        dataset,
        batch_size,
        sampler=sampler,
        collate_fn=collator,
        drop_last=drops,
        pin_memory=uses_gpu(cfg),
        generator=torch.Generator(),  # without it every pass draws from the random stream that dropout uses
    )
    return loader, sampler


def make_sorted_loader(
    cfg: Config,
    dataset: Dataset,
    lengths: np.ndarray,
    batch_size: int,
    collator: Callable[[Any], Any],
    chosen: np.ndarray | None = None,
) -> DataLoader:
    """Make a loader whose batches hold examples of like length [N], shortest first, so that little is padded.

    ``chosen``: indices of the examples to load, all if None.
    """
    index = np.arange(len(lengths)) if chosen is None else chosen
    return DataLoader(
        dataset,
        batch_size,
        sampler=index[np.argsort(lengths[index], kind="stable")].tolist(),
        collate_fn=collator,
        pin_memory=uses_gpu(cfg),
        generator=torch.Generator(),
    )


def describe_unknown_tokens(encoder: str, tokenizer: Any, ids: Sequence[np.ndarray]) -> list[str]:
    """Return a warning in a list if a tokenizer does not know more than ``MOST_UNKNOWN`` of the training tokens.

    Tokens that the tokenizer adds to every text, such as ``[CLS]``, are not counted. UserError if it knows no token:
    an encoder learns nothing from unknown ones.
    """
    unknown = tokenizer.unk_token_id
    others = {getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", "cls", "sep")}
    if unknown is None or unknown in others:  # as GPT-2, which has a token for every byte
        return []
    added = [token for token in tokenizer.all_special_ids if token != unknown]
    counts = np.zeros(1 + max([unknown, *added, *(int(part.max(initial=0)) for part in ids)]), np.int64)
    for part in ids:
        counts += np.bincount(part, minlength=len(counts))
    total = int(counts.sum() - counts[added].sum())
    share = counts[unknown] / total if total else 1.0
    if share == 1:
        raise UserError(
            f"encoder={encoder}: its tokenizer knows no word of the training set; does it belong to this encoder, "
            "and to the language of the texts?"
        )
    if share <= MOST_UNKNOWN:
        return []
    return [f"{share:.1%} of the training tokens are unknown to the tokenizer ({tokenizer.unk_token})"]


def resolve_chunk_overhead(cfg: Config, dim: int) -> int:
    """Estimate what one more chunk costs, in tokens.

    A call of the encoder has a fixed cost; a token costs in proportion to d^2. On a CPU both are equal at 128 tokens
    for d = 384 (measured by benchmarks/training_step.py). Groups of packed sentences take the same estimate; a
    quarter of it made no difference. On a GPU small batches are bound by kernel launches: one call is best.
    """
    return ONE_CHUNK if uses_gpu(cfg) else round(128 * (384 / dim) ** 2)


def name_device(cfg: Config) -> str:
    """Name the device and its threads for the keys of cached vectors, whose last bits depend on them."""
    return "cuda" if uses_gpu(cfg) else f"cpu-{torch.get_num_threads()}"


def uses_gpu(cfg: Config) -> bool:
    """Return True if Lightning will put this run on a GPU."""
    return cfg.trainer.accelerator == "gpu" or (cfg.trainer.accelerator == "auto" and torch.cuda.is_available())
