"""The training and dev batches of a translation or summarisation run, tokenised once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from isobench.common.files import cache_dir, sha256_json, shorten_digest
from isobench.config.schema import Config
from isobench.data import pairs
from isobench.data.loaders import (
    ONE_CHUNK,
    ModelInputs,
    check_drop_last,
    make_sorted_loader,
    make_training_loader,
    resolve_chunk_overhead,
    uses_gpu,
)
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
from isobench.data.unknown_tokens import describe_unknown_tokens


class PairLoaders:
    """The training and dev batches of a translation or summarisation run.

    ``train``: the loader of training batches. ``train_tokens``: the training examples. ``dev``: a loader for each dev
    split. ``references``: the target texts of each dev split, in the data's order. ``sampler``: gives the order of
    the training examples, or of the batches where ``optimization.batch_tokens`` is set. ``batch_size``: how many of
    its items make a batch. ``warnings``: for the run's record.

    Args:
        cfg: the run's config.
        inputs: the model that the batches are for.
        fingerprints: those of the task's data and of the model's weights.
        order_seed: seed of the order of the training examples.
        progress_bar: show a bar while texts are tokenised.

    Raises:
        UserError: data that can't be read, or no training batch left.
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
        self.tokenizer = inputs.tokenizer
        self.sizes: dict[str, int] = {}
        self.truncated: dict[str, dict[str, int]] = {}
        task, batch_tokens = cfg.task, cfg.optimization.batch_tokens
        longest = min(inputs.max_positions, self.tokenizer.model_max_length)
        self.max_length = min(task.max_length, longest)
        self.max_target_length = min(require_generation(task).max_length, longest)
        train = self._load_or_tokenise(task.train_split, pairs.resolve_train_limit(task))
        self.train_tokens = train
        ids = [train.sources.ids, train.targets.ids]
        self.warnings = describe_unknown_tokens(cfg.encoder.name, self.tokenizer, ids)
        self.dev_tokens = [self._load_or_tokenise(split, task.dev_samples) for split in task.dev_splits]
        self.references = [
            pairs.read_pairs(task, cfg.data, split, task.dev_samples).targets for split in task.dev_splits
        ]
        check_drop_last(cfg, len(train))
        dataset: Dataset = train
        self.batch_size = cfg.optimization.batch_size
        if batch_tokens is not None:
            dataset, self.batch_size = TokenBatches(train, batch_tokens, order_seed), 1
        self.sampler = EpochSampler(len(dataset), order_seed)  # type: ignore[arg-type]
        collator = PairCollator(train, self.tokenizer.pad_token_id, resolve_chunk_overhead(cfg, inputs.dim))
        loader_batch_size = self.batch_size if batch_tokens is None else None
        self.train = make_training_loader(cfg, dataset, loader_batch_size, self.sampler, collator)
        self.dev = [self.make_length_sorted_loader(tokens, cfg.trainer.eval_batch_size) for tokens in self.dev_tokens]

    def make_length_sorted_loader(
        self, tokens: PairTokens, batch_size: int, chosen: np.ndarray | None = None
    ) -> DataLoader:
        """Make a loader of batches whose sources are of like length, shortest first; each batch is one chunk.

        ``chosen``: the indices of the examples to load, all if None.
        """
        collator = PairCollator(tokens, self.tokenizer.pad_token_id, ONE_CHUNK)
        return make_sorted_loader(tokens, tokens.sources.lengths, batch_size, collator, uses_gpu(self.cfg), chosen)

    def describe_data(self) -> dict[str, Any]:
        """Return the record's entries on the data: examples, truncated texts and maximal lengths."""
        limits = {"sources": self.max_length, "targets": self.max_target_length}
        return {"examples": self.sizes, "truncated": self.truncated, "limits": limits}

    def _load_or_tokenise(self, split: str, limit: int | None) -> PairTokens:
        """Return a split's tokens, from the cache or made and cached now; ``limit``: examples kept at most."""
        task, generation = self.cfg.task, require_generation(self.cfg.task)
        instruction = (generation.instruction or "") if self.cfg.encoder.instructions else ""
        key_inputs = [
            VERSION, *self.fingerprints, *pairs.list_cache_key_inputs(task, split, limit), instruction,
            self.max_length, self.max_target_length, self.inputs.fingerprint,
        ]  # fmt: skip
        name = f"{task.name}-{split}-{shorten_digest(sha256_json(key_inputs))}.safetensors"
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
