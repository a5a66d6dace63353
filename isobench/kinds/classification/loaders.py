"""The training and dev batches of sentences and pairs of sentences, tokenised once."""

from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from isobench.common.errors import UserError
from isobench.common.files import sha256_json
from isobench.config.schema import HELD_OUT, Config
from isobench.data.batches.loaders import (
    ONE_CHUNK,
    ModelInputs,
    describe_unknown_tokens,
    make_sorted_loader,
    make_training_loader,
    resolve_chunk_overhead,
)
from isobench.data.batches.tokens import VERSION, Collator, Tokens, take_examples, tokenise_examples
from isobench.data.cache import load_or_make_arrays, name_cached_file
from isobench.data.sources import require_unchanged, select_by_hash
from isobench.kinds.classification.examples import read_examples


class Loaders:
    """The training and dev batches of a sentence classification or regression run.

    ``dev``: a loader for each dev split, and one for the held-out examples and for the test split if there are any.
    ``batch_size``: how many examples the sampler counts for a batch. ``train_fingerprint``: identifies the training
    tokens, for cache keys. ``warnings``: for the run's record.
    """

    def __init__(self, cfg: Config, inputs: ModelInputs, data: dict[str, str], order_seed: int) -> None:
        self.cfg, self.inputs, self.data = cfg, inputs, data
        self.sizes: dict[str, int] = {}
        self.at_limit: dict[str, int] = {}
        task, tokenizer = cfg.task, inputs.tokenizer
        self.max_length = min(task.max_length, inputs.max_positions, tokenizer.model_max_length)
        train, self.train_fingerprint = self._load_or_tokenise(task.train_split, task.train_samples)
        self.warnings = describe_unknown_tokens(cfg.encoder.name, tokenizer, [train.ids])
        dev = [self._load_or_tokenise(split, task.dev_samples)[0] for split in task.dev_splits]
        if task.held_out is not None:
            train, held_out = self._split_held_out(train, task.train_split, task.held_out)
            dev.append(held_out)
        self.in_train = self._count_in_train(train, dict(zip(task.evaluated, dev, strict=True)))
        if task.test_split is not None:
            dev.append(self._load_or_tokenise(task.test_split, None)[0])
        self.batch_size, self.train_tokens = cfg.optimization.batch_size, train
        overhead = resolve_chunk_overhead(cfg, inputs.dim)
        collator = self._make_collator(train, overhead)
        self.train, self.sampler = make_training_loader(cfg, train, self.batch_size, order_seed, collator)
        # Evaluation uses moving statistics only, so batches of like length save padding and change nothing.
        self.dev = [self.make_length_sorted_loader(tokens, cfg.trainer.eval_batch_size, overhead) for tokens in dev]

    def describe_data(self) -> dict[str, Any]:
        """Return the record's entries on the data: counts of examples by split, and their maximal length."""
        counts = {"examples": self.sizes, "at_limit": self.at_limit, "in_train": self.in_train}
        return {**counts, "max_length": self.max_length}

    def _count_in_train(self, train: Tokens, dev: dict[str, Tokens]) -> dict[str, int]:
        """Count the examples of each dev split that are among the training examples, and warn of them."""
        known = set(train.list_ids())
        counts = {split: sum(ids in known for ids in tokens.list_ids()) for split, tokens in dev.items()}
        task = self.cfg.task
        self.warnings += [
            f"task={task.name}: {count:,} of {len(dev[split]):,} examples of {split} are in {task.train_split} too."
            for split, count in counts.items()
            if count
        ]
        return counts

    def make_length_sorted_loader(
        self, tokens: Tokens, batch_size: int, chunk_overhead: int = ONE_CHUNK, chosen: np.ndarray | None = None
    ) -> DataLoader:
        """Make a loader of batches of like length, shortest first; by default each batch is one chunk.

        ``chosen``: the indices of the examples to load, all if None.
        """
        collator = self._make_collator(tokens, chunk_overhead)
        return make_sorted_loader(self.cfg, tokens, tokens.lengths, batch_size, collator, chosen)

    def _make_collator(self, tokens: Tokens, chunk_overhead: int) -> Collator:
        padding, types = self.inputs.tokenizer.pad_token_id, self.cfg.encoder.token_type_ids
        return Collator(tokens, padding, chunk_overhead, types, self.inputs.packed)

    def _split_held_out(self, train: Tokens, split: str, share: float) -> tuple[Tokens, Tokens]:
        """Divide the training examples into those trained on and those held out, the same for every seed."""
        chosen = np.isin(np.arange(len(train)), select_by_hash(len(train), round(share * len(train))))
        if not 0 < chosen.sum() < len(train):
            raise UserError(
                f"task.held_out={share:g} holds out {chosen.sum()} of {len(train)} examples; choose a share that "
                "leaves examples on both sides, or take more (task.train_samples)"
            )
        kept, held_out = (take_examples(train, np.flatnonzero(part)) for part in (~chosen, chosen))
        self._note_size(split, kept)
        self._note_size(HELD_OUT, held_out)
        self.train_fingerprint = sha256_json([self.train_fingerprint, share])
        return kept, held_out

    def _note_size(self, split: str, tokens: Tokens) -> None:
        self.sizes[split], self.at_limit[split] = len(tokens), int((tokens.lengths >= self.max_length).sum())

    def _load_or_tokenise(self, split: str, limit: int | None) -> tuple[Tokens, str]:
        """Return a split's tokens, from the cache or made and cached now, and the fingerprint they are cached by."""
        task = self.cfg.task
        key_inputs = [
            VERSION, self.data, split, split == task.test_split, limit, list(task.text), task.label, task.labels,
            task.label_range, task.as_classes, self.max_length, self.inputs.fingerprint,
        ]  # fmt: skip
        fingerprint = sha256_json(key_inputs)

        def tokenise() -> dict[str, np.ndarray]:
            examples = read_examples(task, self.cfg.data, split, limit)
            require_unchanged(task, self.cfg.data, self.data)
            return vars(tokenise_examples(examples, self.inputs.tokenizer, self.max_length))

        file = name_cached_file(self.cfg.data.cache, "tokens", f"{task.name}-{split}", fingerprint)
        tokens = Tokens(**load_or_make_arrays(file, tokenise))
        self._note_size(split, tokens)
        return tokens, fingerprint
