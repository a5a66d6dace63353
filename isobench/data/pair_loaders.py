"""The training and dev batches of a translation or summarisation run, tokenised once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from isobench.common.errors import UserError
from isobench.common.files import cache_dir, sha256_json, shorten_digest
from isobench.config.schema import Config
from isobench.data import pairs
from isobench.data.loaders import ModelInputs, resolve_chunk_overhead, uses_gpu
from isobench.data.pair_tokens import (
    VERSION,
    PairCollator,
    PairTokens,
    TokenBatches,
    load_pair_tokens,
    save_pair_tokens,
    tokenise_pairs,
)
from isobench.data.pairs import require_generation
from isobench.data.tokens import EpochSampler


class PairLoaders:
    """Training and dev batches of a run, with what the record says of them.

    ``references``: of every dev split, the target texts, in the data's order. ``batch_size``: items that the sampler
    counts for a batch, which are batches themselves where their size is in tokens.

    Args:
        cfg: the run's config.
        inputs: the model that the batches are for.
        fingerprints: those of the task's data and of the model's weights.
        order_seed: seed of the order of the training examples.
        progress_bar: show a bar while texts are tokenised.
    """

    def __init__(
        self,
        cfg: Config,
        inputs: ModelInputs,
        fingerprints: Sequence[dict[str, str]],
        order_seed: int,
        progress_bar: bool,
    ) -> None:
        self.cfg, self.inputs, self.fingerprints, self.progress_bar = cfg, inputs, fingerprints, progress_bar
        tokenizer = self.tokenizer = inputs.tokenizer
        self.sizes: dict[str, int] = {}
        self.truncated: dict[str, dict[str, int]] = {}
        task, o = cfg.task, cfg.optimization
        self.max_length = min(task.max_length, inputs.positions, tokenizer.model_max_length)
        self.max_target_length = min(
            require_generation(task).max_length, inputs.positions, tokenizer.model_max_length
        )
        train = self._tokens(task.train_split, pairs.resolve_train_limit(task))
        self.train_tokens = train
        self.dev_tokens = [self._tokens(split, task.dev_samples) for split in task.dev_splits]
        self.references = [
            pairs.read_pairs(task, cfg.data, split, task.dev_samples).targets for split in task.dev_splits
        ]
        self._overhead, self._pin = resolve_chunk_overhead(cfg, inputs.dim), uses_gpu(cfg)
        if o.drop_last and len(train) < o.batch_size:
            raise UserError(f"optimization.drop_last drops all {len(train)} examples: set a batch_size up to that")
        collator = PairCollator(train, tokenizer.pad_token_id, self._overhead)
        data: Dataset = train
        self.batch_size = o.batch_size
        if o.batch_tokens is not None:
            data, self.batch_size = TokenBatches(train, o.batch_tokens, order_seed), 1
        self.sampler = EpochSampler(len(data), order_seed)  # type: ignore[arg-type]
        self.train = DataLoader(
            data,
            None if o.batch_tokens is not None else o.batch_size,
            sampler=self.sampler,
            collate_fn=collator,
            drop_last=o.drop_last and o.batch_tokens is None,
            pin_memory=self._pin,
            generator=torch.Generator(),  # else every pass draws from the stream that dropout uses
        )
        self.dev = [self.by_length(tokens, cfg.trainer.eval_batch_size) for tokens in self.dev_tokens]

    def by_length(self, tokens: PairTokens, batch_size: int) -> DataLoader:
        """Batches of sources of like length, shortest first, each one chunk."""
        return DataLoader(
            tokens,
            batch_size,
            sampler=np.argsort(tokens.sources.lengths, kind="stable").tolist(),
            collate_fn=PairCollator(tokens, self.tokenizer.pad_token_id, 1 << 20),
            pin_memory=self._pin,
            generator=torch.Generator(),
        )

    def record(self) -> dict[str, Any]:
        """What a run's record says of its data."""
        limits = {"sources": self.max_length, "targets": self.max_target_length}
        return {"examples": self.sizes, "truncated": self.truncated, "limits": limits}

    def _tokens(self, split: str, limit: int | None) -> PairTokens:
        """Tokens from the cache, or made now and cached."""
        task, generation = self.cfg.task, require_generation(self.cfg.task)
        instruction = (generation.instruction or "") if self.cfg.encoder.instructions else ""
        decisive = [
            VERSION, *self.fingerprints, *pairs.list_cache_key_inputs(task, split, limit), instruction,
            self.max_length, self.max_target_length, self.inputs.fingerprint,
        ]  # fmt: skip
        name = f"{task.name}-{split}-{shorten_digest(sha256_json(decisive))}.safetensors"
        file = cache_dir(self.cfg.data.cache) / "pairs" / name
        tokens = load_pair_tokens(file)
        if tokens is None:
            texts = pairs.read_pairs(task, self.cfg.data, split, limit)
            tokens = tokenise_pairs(
                texts, self.tokenizer, self.max_length, self.max_target_length, instruction, self.progress_bar
            )
            save_pair_tokens(tokens, file)
        self.sizes[split] = len(tokens)
        self.truncated[split] = {"sources": tokens.sources.truncated_count, "targets": tokens.targets.truncated_count}
        return tokens
