"""The training and dev batches of one run, tokenised once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from isobench.common.errors import UserError
from isobench.common.files import sha256_json
from isobench.config.schema import HELD_OUT, Config
from isobench.data import sources
from isobench.data.batches.tokens import VERSION, Collator, EpochSampler, Tokens, take_examples, tokenise_examples
from isobench.data.cache import load_or_make_arrays, name_cached_file

ONE_CHUNK = 1 << 20  # a cost of one more encoder call, in tokens, at which a batch is never cut into chunks
MOST_UNKNOWN = 0.01  # share of unknown tokens above which a run's record has a warning


@dataclass(frozen=True)
class ModelInputs:
    """What batches need to know of a model.

    ``tokenizer``: a transformers tokenizer. ``fingerprint``: identifies what the tokenizer does, for cache keys.
    ``max_positions``: the model's longest input, in tokens. ``dim``: its width d. ``packed``: it reads a batch as one
    row of tokens without padding. ``words``: how many tokens it has vectors for, None if that is not known.
    """

    tokenizer: Any
    fingerprint: str
    max_positions: int
    dim: int
    packed: bool = False
    words: int | None = None


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
        if task.test_split is not None:
            dev.append(self._load_or_tokenise(task.test_split, None)[0])
        self.in_train = self._count_in_train(train, dict(zip(task.evaluated, dev, strict=False)))
        self.batch_size = cfg.optimization.batch_size
        self.train_tokens = train
        check_drop_last(cfg, len(train))
        self.sampler = EpochSampler(len(train), order_seed)
        overhead = resolve_chunk_overhead(cfg, inputs.dim)
        collator = self._make_collator(train, overhead)
        self.train = make_training_loader(cfg, train, self.batch_size, self.sampler, collator)
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
        chosen = np.isin(np.arange(len(train)), sources.select_by_hash(len(train), round(share * len(train))))
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
            examples = sources.read_examples(task, self.cfg.data, split, limit)
            sources.require_unchanged(task, self.cfg.data, self.data)
            return vars(tokenise_examples(examples, self.inputs.tokenizer, self.max_length))

        file = name_cached_file(self.cfg.data.cache, "tokens", f"{task.name}-{split}", fingerprint)
        tokens = Tokens(**load_or_make_arrays(file, tokenise))
        check_token_ids(self.cfg.encoder.name, tokens.ids, self.inputs.words)
        self._note_size(split, tokens)
        return tokens, fingerprint


def make_training_loader(
    cfg: Config, dataset: Dataset, batch_size: int | None, sampler: EpochSampler, collator: Callable[[Any], Any]
) -> DataLoader:
    """Make the loader of training batches; with ``batch_size`` None every item of the dataset is a batch."""
    return DataLoader(
        dataset,
        batch_size,
        sampler=sampler,
        collate_fn=collator,
        drop_last=cfg.optimization.drop_last and batch_size is not None,
        pin_memory=uses_gpu(cfg),
        generator=torch.Generator(),  # without it every pass draws from the random stream that dropout uses
    )


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


def check_drop_last(cfg: Config, examples: int) -> None:
    """Raise UserError if ``optimization.drop_last`` drops the only batch, because it has too few examples."""
    if cfg.optimization.drop_last and examples < cfg.optimization.batch_size:
        raise UserError(
            f"optimization.drop_last drops every batch: set optimization.batch_size to {examples} or less"
        )


def check_token_ids(encoder: str, ids: np.ndarray, words: int | None) -> None:
    """Raise UserError if a tokenizer gives a token id for which the encoder, with ``words`` vectors, has none."""
    highest = int(ids.max(initial=0))
    if words is not None and highest >= words:
        raise UserError(
            f"encoder={encoder}: its tokenizer gives token id {highest:,}, but the encoder knows only {words:,} "
            "tokens: use the tokenizer that was saved with these weights"
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
