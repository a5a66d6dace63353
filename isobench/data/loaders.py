"""The training and dev batches of one run, tokenised once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from isobench.common.errors import UserError
from isobench.common.files import cache_dir, sha256_json, shorten_digest
from isobench.config.schema import HELD_OUT, Config
from isobench.data import sources
from isobench.data.tokens import (
    VERSION,
    Collator,
    EpochSampler,
    Tokens,
    load_tokens,
    save_tokens,
    take_examples,
    tokenise_examples,
)


@dataclass(frozen=True)
class ModelInputs:
    """What batches must fit: a model's tokenizer and its fingerprint, its longest input in tokens, its width d."""

    tokenizer: Any
    fingerprint: str
    positions: int
    dim: int


def resolve_chunk_overhead(cfg: Config, dim: int) -> int:
    """Tokens that one more encoder call costs as much as, unless ``trainer.chunk_overhead`` says.

    A call's fixed cost is spread over d^2 operations a token: 128 tokens at d = 384 on a CPU (measured by
    benchmarks/training_step.py). On a GPU small batches are bound by launches, and one call is best.
    """
    if cfg.trainer.chunk_overhead is not None:
        return cfg.trainer.chunk_overhead
    return 1 << 20 if uses_gpu(cfg) else round(128 * (384 / dim) ** 2)


class Loaders:
    """Training and dev batches of a run; ``batch_size``: examples that the sampler counts for a batch.

    Args:
        cfg: the run's config.
        inputs: the model that the batches are for.
        data: the fingerprint of the task's data.
        order_seed: seed of the order of the training examples.
    """

    def __init__(self, cfg: Config, inputs: ModelInputs, data: dict[str, str], order_seed: int) -> None:
        self.sizes: dict[str, int] = {}
        self.at_limit: dict[str, int] = {}
        tokenizer = inputs.tokenizer
        self.max_length = min(cfg.task.max_length, inputs.positions, tokenizer.model_max_length)
        task = cfg.task
        train, self.train_fingerprint = self._tokens(cfg, inputs, data, task.train_split, task.train_samples)
        dev = [self._tokens(cfg, inputs, data, split, task.dev_samples)[0] for split in task.dev_splits]
        if task.held_out is not None:
            train, held_out = self._split_held_out(train, task.train_split, task.held_out)
            dev.append(held_out)
        self._overhead = resolve_chunk_overhead(cfg, inputs.dim)
        self._pad, self._types, self._pin = tokenizer.pad_token_id, cfg.encoder.token_type_ids, uses_gpu(cfg)
        self.batch_size = batch = cfg.optimization.batch_size
        if cfg.optimization.drop_last and len(train) < batch:
            raise UserError(f"optimization.drop_last drops all {len(train)} examples: set a batch_size up to that")
        self.sampler = EpochSampler(len(train), order_seed)
        self.train = DataLoader(
            train,
            batch,
            sampler=self.sampler,
            collate_fn=self._make_collator(train, self._overhead),
            drop_last=cfg.optimization.drop_last,
            pin_memory=self._pin,
            generator=torch.Generator(),  # else every pass draws from the stream that dropout uses
        )
        # Evaluation uses moving statistics only: batches of like length cost no padding and change nothing.
        self.dev = [self.by_length(tokens, cfg.trainer.eval_batch_size, self._overhead) for tokens in dev]

    def record(self) -> dict[str, Any]:
        """What a run's record says of its data."""
        return {"examples": self.sizes, "at_limit": self.at_limit}

    def _split_held_out(self, train: Tokens, split: str, share: float) -> tuple[Tokens, Tokens]:
        """What is trained on, and the ``share`` that is held out: the same examples everywhere, for every seed."""
        out = np.isin(np.arange(len(train)), sources.select_by_hash(len(train), round(share * len(train))))
        if not 0 < out.sum() < len(train):
            raise UserError(f"task.held_out={share:g} leaves {out.sum()} of {len(train)} examples to select on")
        kept, held_out = (take_examples(train, np.flatnonzero(part), self.max_length) for part in (~out, out))
        self.sizes |= {split: len(kept), HELD_OUT: len(held_out)}
        self.at_limit |= {split: kept.at_limit, HELD_OUT: held_out.at_limit}
        self.train_fingerprint = sha256_json([self.train_fingerprint, share])
        return kept, held_out

    def by_length(self, tokens: Tokens, batch_size: int, chunk_overhead: int = 1 << 20) -> DataLoader:
        """Batches of like length, shortest first; by default each is one chunk."""
        return DataLoader(
            tokens,
            batch_size,
            sampler=np.argsort(tokens.lengths, kind="stable").tolist(),
            collate_fn=self._make_collator(tokens, chunk_overhead),
            pin_memory=self._pin,
            generator=torch.Generator(),
        )

    def _make_collator(self, tokens: Tokens, chunk_overhead: int) -> Collator:
        return Collator(tokens, self._pad, chunk_overhead, self._types)

    def _tokens(
        self, cfg: Config, inputs: ModelInputs, data: dict[str, str], split: str, limit: int | None
    ) -> tuple[Tokens, str]:
        """Tokens from the cache, or made now and cached; with a fingerprint of all that decides them."""
        task = cfg.task
        decisive = [
            VERSION, data, split, limit, list(task.text), task.labels, task.label_range, task.as_classes,
            self.max_length, inputs.fingerprint,
        ]  # fmt: skip
        fingerprint = sha256_json(decisive)
        file = cache_dir(cfg.data.cache) / "tokens" / f"{task.name}-{split}-{shorten_digest(fingerprint)}.safetensors"
        tokens = load_tokens(file)
        if tokens is None:
            examples = sources.read_examples(task, cfg.data, split, limit)
            tokens = tokenise_examples(examples, inputs.tokenizer, self.max_length)
            save_tokens(tokens, file)
        self.sizes[split], self.at_limit[split] = len(tokens), tokens.at_limit
        return tokens, fingerprint


def uses_gpu(cfg: Config) -> bool:
    """Whether Lightning will put this run on a GPU."""
    return cfg.trainer.accelerator == "gpu" or (cfg.trainer.accelerator == "auto" and torch.cuda.is_available())
