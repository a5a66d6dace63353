"""The batches of a translation or summarisation run: tokenised once, kept on disk, with little padding."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from isobench.common.files import sha256_json
from isobench.common.progress import track_progress
from isobench.config.schema import Config
from isobench.data.batches.loaders import (
    ONE_CHUNK,
    ModelInputs,
    describe_unknown_tokens,
    make_sorted_loader,
    make_training_loader,
    resolve_chunk_overhead,
)
from isobench.data.batches.tokens import TEXTS_PER_CALL, Rows, find_chunk_bounds, pad_rows
from isobench.data.cache import load_or_make_arrays, name_cached_file
from isobench.data.sources import require_unchanged
from isobench.kinds.generation.pairs import list_cache_key_inputs, read_pairs, require_generation
from isobench.tasks.kind import Examples

VERSION = 3  # of the cached files' content, part of their cache key


@dataclass
class TokenisedTexts:
    """N tokenised texts, one after the other: text i is ``ids[offsets[i]:offsets[i + 1]]``.

    ``truncated`` [N]: True for those that were too long and were cut.
    """

    ids: np.ndarray
    offsets: np.ndarray
    truncated: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each text, [N]."""
        return np.diff(self.offsets)


@dataclass
class PairTokens(Rows):
    """N examples, each a source and a target."""

    sources: TokenisedTexts
    targets: TokenisedTexts

    @property
    def lengths(self) -> np.ndarray:  # type: ignore[override]
        """Number of tokens of each example, source and target together, [N]."""
        return self.sources.lengths + self.targets.lengths

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays by name, such as ``sources_ids``, for the cache."""
        sides = vars(self).items()
        return {f"{side}_{name}": array for side, texts in sides for name, array in vars(texts).items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "PairTokens":
        """Undo ``to_arrays``."""
        names = ("ids", "offsets", "truncated")
        return cls(
            *(TokenisedTexts(*(arrays[f"{side}_{name}"] for name in names)) for side in ("sources", "targets"))
        )


def batch_by_tokens(order: Sequence[int], sources: np.ndarray, targets: np.ndarray, limit: int) -> list[list[int]]:
    """Cut ``order`` into batches of at most ``limit`` padded tokens; a longer example is a batch by itself.

    A batch has (longest source + longest target) x its examples padded tokens. ``sources`` and ``targets`` [N] are
    the numbers of tokens of each example.
    """
    batches: list[list[int]] = []
    longest = (0, 0)
    for i in order:
        longest = max(longest[0], int(sources[i])), max(longest[1], int(targets[i]))
        if not batches or (len(batches[-1]) + 1) * sum(longest) > limit:
            batches.append([])
            longest = int(sources[i]), int(targets[i])
        batches[-1].append(i)
    return batches


def tokenise_pairs(pairs: Examples, tokenizer: Any, max_length: int, max_target: int, instruction: str) -> PairTokens:
    """Tokenise sources, each with the ``instruction`` before it, and targets; both limits are in tokens."""
    sources = [instruction + text for text in pairs.texts[0]]
    return PairTokens(
        tokenise_texts(sources, tokenizer, "text", max_length),
        tokenise_texts(pairs.labels, tokenizer, "text_target", max_target),
    )


def tokenise_texts(texts: list[str], tokenizer: Any, argument: str, max_length: int) -> TokenisedTexts:
    """Tokenise texts and cut those that are longer than ``max_length``; a cut text keeps its closing tokens.

    Every text gets a closing token: if the tokenizer adds none, it is added here, because a model that never sees one
    never stops generating. ``argument``: the tokenizer's, ``text`` for sources and ``text_target`` for targets.
    """
    closing = tokenizer.eos_token_id
    adds_closing = closing in tokenizer(**{argument: ["a"]})["input_ids"][0][-2:]  # mBART adds a language after it
    room = max_length - (not adds_closing)
    rows: list[np.ndarray] = []
    truncated: list[bool] = []
    for start in track_progress(range(0, len(texts), TEXTS_PER_CALL), "tokens, once"):
        part = texts[start : start + TEXTS_PER_CALL]
        encoded = tokenizer(**{argument: part}, padding=False)["input_ids"]
        long = [i for i, row in enumerate(encoded) if len(row) > room]
        truncated += [len(row) > room for row in encoded]
        if long:  # only these are tokenised again, so that the tokenizer puts its closing tokens after the cut
            limits = {"truncation": True, "max_length": room, "padding": False}
            shortened = tokenizer(**{argument: [part[i] for i in long]}, **limits)["input_ids"]
            for i, row in zip(long, shortened, strict=True):
                encoded[i] = row
        rows += [np.asarray(row if adds_closing else [*row, closing], np.int32) for row in encoded]
    offsets = np.cumsum([0, *map(len, rows)])
    return TokenisedTexts(np.concatenate(rows), offsets, np.array(truncated))


class PairCollator:
    """Make a batch of example indices, in chunks of like length.

    The decoder's states of all chunks are joined before the calibration, so that statistics of the batch, such as
    IsoBN's covariance, don't depend on the chunks.

    Args:
        chunk_overhead: what one more call of the model costs, in tokens; a large value gives one chunk.
    """

    def __init__(self, tokens: PairTokens, pad_id: int, chunk_overhead: int) -> None:
        self.tokens, self.pad_id, self.chunk_overhead = tokens, pad_id, chunk_overhead
        self.lengths = tokens.lengths

    def __call__(self, indices: Sequence[int]) -> dict[str, Any]:
        """Return a batch of B examples: ``chunks`` (see ``_pad``) and ``index`` [B], the examples in their order."""
        index = np.asarray(indices)
        order = np.argsort(-self.lengths[index], kind="stable")
        index = index[order]
        bounds = find_chunk_bounds(self.lengths[index].tolist(), self.chunk_overhead)
        chunks = [self._pad(index[a:b]) for a, b in itertools.pairwise(bounds)]
        return {"chunks": chunks, "index": torch.from_numpy(index)}

    def _pad(self, index: np.ndarray) -> dict[str, torch.Tensor]:
        """Return one chunk of b examples: ``input_ids``, ``attention_mask`` [b, S] of the sources, ``labels`` [b, T].

        ``positions`` [n]: of the target tokens that are not padding, in ``labels`` flattened to [b * T]. They are
        found here because a GPU would have to be waited for.
        """
        sources, targets = self.tokens.sources, self.tokens.targets
        ids, mask, _ = pad_rows(sources.ids, sources.offsets, index, self.pad_id)
        labels, real, _ = pad_rows(targets.ids, targets.offsets, index, self.pad_id)
        return {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "labels": torch.from_numpy(labels),
            "positions": torch.from_numpy(np.flatnonzero(real)),
        }


class PairLoaders:
    """The training and dev batches of a translation or summarisation run.

    ``references``: the target texts of each dev split, in the data's order. ``sampler``: gives the order of the
    training examples, or of the batches where ``optimization.batch_tokens`` is set. ``batch_size``: how many of its
    items make a batch. ``fingerprints``: those of the task's data and of the model's weights.
    """

    def __init__(
        self,
        cfg: Config,
        inputs: ModelInputs,
        fingerprints: Sequence[dict[str, str]],
        order_seed: int,
    ) -> None:
        self.cfg, self.inputs, self.fingerprints = cfg, inputs, fingerprints
        self.tokenizer = inputs.tokenizer
        self.sizes: dict[str, int] = {}
        self.truncated: dict[str, dict[str, int]] = {}
        task, batch_tokens = cfg.task, cfg.optimization.batch_tokens
        longest = min(inputs.max_positions, self.tokenizer.model_max_length)
        self.max_length = min(task.max_length, longest)
        self.max_target_length = min(require_generation(task).max_length, longest)
        self.train_tokens = train = self._load_or_tokenise(task.train_split, task.train_limit)
        self.warnings = describe_unknown_tokens(
            cfg.encoder.name, self.tokenizer, [train.sources.ids, train.targets.ids]
        )
        self.dev_tokens = [self._load_or_tokenise(split, task.dev_samples) for split in task.dev_splits]
        self.references = [read_pairs(task, cfg.data, split, task.dev_samples).labels for split in task.dev_splits]
        dataset: Any = train
        batch_size: int | None = cfg.optimization.batch_size
        if batch_tokens is not None:  # every epoch has the same batches, each an item; their order is the sampler's
            order = torch.randperm(len(train), generator=torch.Generator().manual_seed(order_seed)).tolist()
            dataset = batch_by_tokens(order, train.sources.lengths, train.targets.lengths, batch_tokens)
            batch_size = None
        self.batch_size = batch_size or 1
        collator = PairCollator(train, self.tokenizer.pad_token_id, resolve_chunk_overhead(cfg, inputs.dim))
        self.train, self.sampler = make_training_loader(cfg, dataset, batch_size, order_seed, collator)
        self.dev = [self.make_length_sorted_loader(tokens, cfg.trainer.eval_batch_size) for tokens in self.dev_tokens]

    def make_length_sorted_loader(
        self, tokens: PairTokens, batch_size: int, chosen: np.ndarray | None = None
    ) -> DataLoader:
        """Make a loader of batches whose sources are of like length, shortest first; each batch is one chunk."""
        collator = PairCollator(tokens, self.tokenizer.pad_token_id, ONE_CHUNK)
        return make_sorted_loader(self.cfg, tokens, tokens.sources.lengths, batch_size, collator, chosen)

    def describe_data(self) -> dict[str, Any]:
        """Return the record's entries on the data: examples, truncated texts and maximal lengths."""
        limits = {"sources": self.max_length, "targets": self.max_target_length}
        return {"examples": self.sizes, "truncated": self.truncated, "limits": limits}

    def _load_or_tokenise(self, split: str, limit: int | None) -> PairTokens:
        task, generation = self.cfg.task, require_generation(self.cfg.task)
        instruction = (generation.instruction or "") if self.cfg.encoder.instructions else ""
        key_inputs = [
            VERSION, *self.fingerprints, *list_cache_key_inputs(task, split, limit), instruction,
            self.max_length, self.max_target_length, self.inputs.fingerprint,
        ]  # fmt: skip

        def tokenise() -> dict[str, np.ndarray]:
            texts = read_pairs(task, self.cfg.data, split, limit)
            require_unchanged(task, self.cfg.data, self.fingerprints[0])
            limits = (self.max_length, self.max_target_length)
            return tokenise_pairs(texts, self.tokenizer, *limits, instruction).to_arrays()

        file = name_cached_file(self.cfg.data.cache, "pairs", f"{task.name}-{split}", sha256_json(key_inputs))
        tokens = PairTokens.from_arrays(load_or_make_arrays(file, tokenise))
        self.sizes[split] = len(tokens)
        self.truncated[split] = {side: int(texts.truncated.sum()) for side, texts in vars(tokens).items()}
        return tokens
