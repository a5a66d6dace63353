"""Tokenise once, keep on disk, and build batches without padding that is computed for nothing."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch.utils.data import Dataset, Sampler

from isobench.common.files import write_cached
from isobench.data.sources import Examples

VERSION = 1  # of the cached files' content; part of their name


@dataclass
class Tokens(Dataset):
    """N tokenised examples, flat: example i is ``ids[offsets[i]:offsets[i + 1]]``.

    ids [total] int32; types [total] uint8 (empty if the tokenizer makes none); labels [N].
    ``at_limit`` counts the examples that were cut, or are exactly as long as the limit.
    """

    ids: np.ndarray
    types: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray
    at_limit: int

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> int:
        return index  # the collator gathers a whole batch at once

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, [N]."""
        return np.diff(self.offsets)


def take_examples(tokens: Tokens, index: np.ndarray, max_length: int) -> Tokens:
    """The examples at ``index`` [n], in that order, of tokens that were cut at ``max_length``."""
    lengths = tokens.lengths[index]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    where = np.repeat(tokens.offsets[index] - offsets[:-1], lengths) + np.arange(offsets[-1])
    types = tokens.types[where] if len(tokens.types) else tokens.types
    return Tokens(tokens.ids[where], types, offsets, tokens.labels[index], int((lengths >= max_length).sum()))


def tokenise_examples(examples: Examples, tokenizer: Any, max_length: int) -> Tokens:
    """Tokenise all examples, one call, truncated to ``max_length``, unpadded."""
    encoded = tokenizer(*examples.texts, truncation=True, max_length=max_length, padding=False)
    rows = encoded["input_ids"]
    lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
    types = encoded.get("token_type_ids")
    return Tokens(
        ids=np.concatenate([np.asarray(row, np.int32) for row in rows]),
        types=np.concatenate([np.asarray(row, np.uint8) for row in types]) if types else np.empty(0, np.uint8),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        labels=examples.labels,
        at_limit=int((lengths >= max_length).sum()),
    )


def load_tokens(file: Path) -> Tokens | None:
    """Tokens from the cache; None if absent or damaged (it is then made again)."""
    try:
        arrays = load_file(file)
        return Tokens(arrays["ids"], arrays["types"], arrays["offsets"], arrays["labels"], int(arrays["at_limit"][0]))
    except FileNotFoundError:
        return None
    except Exception:  # safetensors raises its own kinds for a truncated or foreign file
        return None


def save_tokens(tokens: Tokens, file: Path) -> None:
    """Write tokens to the cache, whole or not at all."""
    arrays = {
        "ids": tokens.ids,
        "types": tokens.types,
        "offsets": tokens.offsets,
        "labels": tokens.labels,
        "at_limit": np.array([tokens.at_limit]),
    }
    write_cached(file, lambda temporary: save_file(arrays, temporary), "token cache")


class EpochSampler(Sampler[int]):
    """A permutation of n examples that depends on (seed, epoch) only, so any epoch can be replayed."""

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed, self.epoch, self._skip = n, seed, 0, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning at the start of every epoch."""
        self.epoch = epoch

    def skip(self, examples: int) -> None:
        """Leave out the first ``examples`` of the next epoch that is read: they were trained on already."""
        self._skip = examples

    def __iter__(self) -> Iterator[int]:
        """A generator: where to start is asked at the first example, for iterators are made before a run resumes."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        start, self._skip = self._skip, 0
        yield from torch.randperm(self.n, generator=generator).tolist()[start:]

    def __len__(self) -> int:
        return self.n


class Collator:
    """Turns example indices into a batch of length-sorted chunks.

    Only the encoder sees the chunks; their vectors are joined in the batch's own order before the
    calibration (``restore``), so the batch's composition, and with it IsoBN's covariance, is untouched.

    Args:
        tokens: the examples.
        pad_id: the tokenizer's padding token.
        chunk_overhead: fixed cost of one more encoder call, in tokens; large values give one chunk.
        token_type_ids: hand segment ids to the encoder.
    """

    def __init__(self, tokens: Tokens, pad_id: int, chunk_overhead: int, token_type_ids: bool) -> None:
        self.tokens, self.pad_id, self.chunk_overhead = tokens, pad_id, chunk_overhead
        self.token_type_ids = token_type_ids and len(tokens.types) > 0
        self.lengths = tokens.lengths

    def __call__(self, indices: list[int]) -> dict[str, Any]:
        """Batch with ``chunks`` (encoder arguments, [b, T] each), ``restore`` [B], ``labels`` [B], ``index`` [B]."""
        index = np.asarray(indices)
        lengths = self.lengths[index]
        order = np.argsort(-lengths, kind="stable")
        bounds = find_chunk_bounds(lengths[order].tolist(), self.chunk_overhead)
        chunks = [self._pad(index[order[a:b]]) for a, b in itertools.pairwise(bounds)]
        return {
            "chunks": chunks,
            "restore": torch.from_numpy(np.argsort(order, kind="stable")),
            "labels": torch.from_numpy(self.tokens.labels[index]),
            "index": torch.from_numpy(index),
        }

    def _pad(self, index: np.ndarray) -> dict[str, torch.Tensor]:
        ids, mask, where = pad_rows(self.tokens.ids, self.tokens.offsets, index, self.pad_id)
        chunk = {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
        }
        if self.token_type_ids:
            types = np.zeros(mask.shape, np.int64)
            types[mask] = self.tokens.types[where]
            chunk["token_type_ids"] = torch.from_numpy(types)
        return chunk


def pad_rows(
    flat: np.ndarray, offsets: np.ndarray, index: np.ndarray, pad_id: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows ``flat[offsets[i]:offsets[i + 1]]`` for i in ``index`` [b], as ids [b, T] int64 and their mask [b, T].

    The third is where in ``flat`` the entries under the mask stand, in its order.
    """
    starts, lengths = offsets[index], offsets[index + 1] - offsets[index]
    columns = np.arange(lengths.max())
    mask = columns < lengths[:, None]  # (b, T)
    where = (starts[:, None] + columns)[mask]
    ids = np.full(mask.shape, pad_id, np.int64)
    ids[mask] = flat[where]
    return ids, mask, where


def find_chunk_bounds(lengths: list[int], overhead: int) -> list[int]:
    """Cut points of the cheapest split of descending lengths into runs.

    A run costs its longest length times its size, plus ``overhead``. Exact, by dynamic programming over
    the end of the last run. Returns [0, ..., len(lengths)].
    """
    best, previous = [0.0], [0]
    for end in range(1, len(lengths) + 1):
        costs = [best[start] + lengths[start] * (end - start) + overhead for start in range(end)]
        start = min(range(end), key=costs.__getitem__)
        best.append(costs[start])
        previous.append(start)
    cuts = [len(lengths)]
    while cuts[-1] > 0:
        cuts.append(previous[cuts[-1]])
    return cuts[::-1]
