"""Tokenise examples once, and build batches with as little padding as pays off: chunks of like length, or one row."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from isobench.tasks.kind import Examples


class Group(NamedTuple):
    """Sentences of like length that stand next to each other in the row; attention sees them padded to the longest.

    ``start``, ``end``: the group's n tokens in the row. ``sentences``: their number b. ``length``: of the longest, T.
    ``tokens`` [b T]: for each place of the padded group its token, counted from ``start``; a place of padding repeats
    the sentence's first token. ``places`` [n]: for each token its place. ``mask`` [b, T]: False at padding. The three
    are None if all sentences are as long as the longest.
    """

    start: int
    end: int
    sentences: int
    length: int
    tokens: Tensor | None = None
    places: Tensor | None = None
    mask: Tensor | None = None

    def pad(self, row: Tensor) -> Tensor:
        """Cut the group out of a row and pad it, [N, ...] -> [b, T, ...]."""
        states = row[self.start : self.end]
        if self.tokens is not None:
            states = states.index_select(0, self.tokens)
        return states.unflatten(0, (self.sentences, self.length))

    def unpad(self, padded: Tensor) -> Tensor:
        """Put the tokens of a padded group in a row, [b, T, ...] -> [n, ...]."""
        flat = padded.flatten(0, 1)
        return flat if self.places is None else flat.index_select(0, self.places)


class Packing(NamedTuple):
    """Tell where the B sentences of a batch are in its row of N tokens: in ``groups``, one after the other.

    ``first`` [B]: each sentence's first token. ``last`` [B]: its last token.
    """

    groups: tuple[Group, ...]
    first: Tensor
    last: Tensor

    def average(self, row: Tensor) -> Tensor:
        """Return the mean over the tokens of each sentence, [N, d] -> [B, d]."""
        means = []
        for group in self.groups:
            padded = group.pad(row)  # (b, T, d)
            if group.mask is None:
                means.append(padded.mean(1))
            else:
                mask = group.mask[:, :, None].to(padded.dtype)
                means.append((padded * mask).sum(1) / mask.sum(1))
        return torch.cat(means)


def plan_packing(lengths: np.ndarray, bounds: Sequence[int]) -> Packing:
    """Plan the row of sentences that follow each other, longest first.

    ``lengths`` [B] are their tokens, not increasing. Group i has the sentences ``bounds[i]`` to ``bounds[i + 1]``.
    """
    ends = np.cumsum(lengths)
    starts = ends - lengths
    groups = tuple(
        _plan_group(int(starts[a]), starts[a:b] - starts[a], lengths[a:b]) for a, b in itertools.pairwise(bounds)
    )
    return Packing(groups, torch.from_numpy(starts), torch.from_numpy(ends - 1))


def _plan_group(start: int, offsets: np.ndarray, lengths: np.ndarray) -> Group:
    """Plan a group at ``start`` in the packed row, with sentences at ``offsets`` [b] from there of ``lengths`` [b].

    Sentences of one length are a plain rectangle of the row, and need no places to gather from.
    """
    longest, total = int(lengths.max()), int(lengths.sum())
    group = Group(start, start + total, len(lengths), longest)
    if total == longest * len(lengths):
        return group
    columns = np.arange(longest)
    mask = columns < lengths[:, None]  # (b, T)
    tokens = np.where(mask, offsets[:, None] + columns, offsets[:, None]).ravel()
    places = np.flatnonzero(mask)
    return group._replace(
        tokens=torch.from_numpy(tokens), places=torch.from_numpy(places), mask=torch.from_numpy(mask)
    )


TEXTS_PER_CALL = 10_000  # of the tokenizer, so that the bar moves
VERSION = 4  # of the cached files' content, part of their cache key


class Rows(Dataset):
    """A data set whose items are their places: its ``collate``, or a collator, gathers a whole batch at once."""

    lengths: np.ndarray  # tokens of each example, [N]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> int:
        return index


@dataclass
class Tokens(Rows):
    """N tokenised examples, one after the other: example i is ``ids[offsets[i]:offsets[i + 1]]``.

    ``ids`` [total] int32. ``types`` [total] uint8, the segment ids, empty if the tokenizer makes none. ``offsets``
    [N + 1]. ``labels`` [N].
    """

    ids: np.ndarray
    types: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray

    @property
    def lengths(self) -> np.ndarray:  # type: ignore[override]
        """Number of tokens of each example, [N]."""
        return np.diff(self.offsets)

    def list_ids(self) -> list[bytes]:
        """Return the token ids of each example as bytes, by which equal examples are found."""
        return [self.ids[start:end].tobytes() for start, end in itertools.pairwise(self.offsets)]


def take_examples(tokens: Tokens, index: np.ndarray) -> Tokens:
    """Return the examples at ``index`` [n], in that order."""
    lengths = tokens.lengths[index]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.repeat(tokens.offsets[index] - offsets[:-1], lengths) + np.arange(offsets[-1])
    types = tokens.types[positions] if len(tokens.types) else tokens.types
    return Tokens(tokens.ids[positions], types, offsets, tokens.labels[index])


def tokenise_examples(examples: Examples, tokenizer: Any, max_length: int) -> Tokens:
    """Tokenise all examples in one call, cut to ``max_length`` tokens and not padded."""
    encoded = tokenizer(*examples.texts, truncation=True, max_length=max_length, padding=False)
    rows = encoded["input_ids"]
    lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
    types = encoded.get("token_type_ids")
    return Tokens(
        ids=np.concatenate([np.asarray(row, np.int32) for row in rows]),
        types=np.concatenate([np.asarray(row, np.uint8) for row in types]) if types else np.empty(0, np.uint8),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        labels=examples.labels,
    )


def list_epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """List n examples in an epoch's random order, [n] int64; seed and epoch alone decide it."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(n, generator=generator).numpy()


class EpochSampler(Sampler[int]):
    """A random order of n examples for each epoch; seed and epoch alone decide it, so it can be repeated."""

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed, self.epoch, self._skip = n, seed, 0, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; Lightning calls it at the start of every epoch."""
        self.epoch = epoch

    def skip(self, examples: int) -> None:
        """Leave out the first ``examples`` of the next pass, because a resumed run has trained on them already."""
        self._skip = examples

    def __iter__(self) -> Iterator[int]:
        """Yield the epoch's indices.

        A generator looks at ``skip`` when the first index is asked for: Lightning makes iterators before it resumes.
        """
        start, self._skip = self._skip, 0
        yield from list_epoch_order(self.n, self.seed, self.epoch).tolist()[start:]

    def __len__(self) -> int:
        return self.n


class Collator:
    """Make a batch of example indices: in chunks of like length, or packed in one row of tokens without padding.

    Only the encoder sees the chunks or the row. Before the calibration their vectors are put back into the batch's
    order (``restore``), so that statistics of the batch, such as IsoBN's covariance, don't depend on the chunks.

    Args:
        chunk_overhead: what one more encoder call costs, in tokens; a large value gives one chunk.
        token_type_ids: give segment ids to the encoder, if there are any.
        packed: make one row, whose sentences attention sees in groups of like length, instead of chunks.
    """

    def __init__(
        self, tokens: Tokens, pad_id: int, chunk_overhead: int, token_type_ids: bool, packed: bool = False
    ) -> None:
        self.tokens, self.pad_id, self.chunk_overhead, self.packed = tokens, pad_id, chunk_overhead, packed
        self.token_type_ids = token_type_ids and len(tokens.types) > 0
        self.lengths = tokens.lengths

    def __call__(self, indices: list[int]) -> dict[str, Any]:
        """Return a batch of B examples.

        ``chunks``: a list of the encoder's arguments, tensors [b, T] each, and ``token_places`` [n], where the tokens
        are that are not padding, counted row by row. Of a packed batch the only chunk is the row, [1, N].
        ``restore`` [B]: for each example of the batch, its place in the joined chunks. ``labels`` [B]. ``index`` [B]:
        the examples' indices.
        """
        index = np.asarray(indices)
        lengths = self.lengths[index]
        order = np.argsort(-lengths, kind="stable")
        bounds = find_chunk_bounds(lengths[order].tolist(), self.chunk_overhead)
        if self.packed:
            chunks = [self._pack(index[order], bounds)]
        else:
            chunks = [self._pad(index[order[a:b]]) for a, b in itertools.pairwise(bounds)]
        return {
            "chunks": chunks,
            "restore": torch.from_numpy(np.argsort(order, kind="stable")),
            "labels": torch.from_numpy(self.tokens.labels[index]),
            "index": torch.from_numpy(index),
        }

    def _pack(self, index: np.ndarray, bounds: list[int]) -> dict[str, Any]:
        """Put the examples at ``index`` [B], longest first, in one row; ``bounds``: of the groups of like length."""
        lengths = self.lengths[index]
        positions = np.concatenate([np.arange(n) for n in lengths])
        where = np.repeat(self.tokens.offsets[index], lengths) + positions
        row = {"input_ids": self.tokens.ids[where].astype(np.int64), "positions": positions}
        if self.token_type_ids:
            row["token_type_ids"] = self.tokens.types[where].astype(np.int64)
        tensors = {name: torch.from_numpy(values)[None] for name, values in row.items()}
        return {**tensors, "packing": plan_packing(lengths, bounds)}

    def _pad(self, index: np.ndarray) -> dict[str, torch.Tensor]:
        ids, mask, positions = pad_rows(self.tokens.ids, self.tokens.offsets, index, self.pad_id)
        chunk = {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "token_places": torch.from_numpy(np.flatnonzero(mask)),
        }
        if self.token_type_ids:
            types = np.zeros(mask.shape, np.int64)
            types[mask] = self.tokens.types[positions]
            chunk["token_type_ids"] = torch.from_numpy(types)
        return chunk


def pad_rows(
    flat: np.ndarray, offsets: np.ndarray, index: np.ndarray, pad_id: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut the rows ``flat[offsets[i]:offsets[i + 1]]``, i in ``index`` [b], and pad them to the longest.

    Returns ids [b, T] int64; the mask [b, T], False at padding; the positions in ``flat`` of what is under the mask.
    """
    starts, lengths = offsets[index], offsets[index + 1] - offsets[index]
    columns = np.arange(lengths.max())
    mask = columns < lengths[:, None]  # (b, T)
    positions = (starts[:, None] + columns)[mask]
    ids = np.full(mask.shape, pad_id, np.int64)
    ids[mask] = flat[positions]
    return ids, mask, positions


def find_chunk_bounds(lengths: list[int], overhead: int) -> list[int]:
    """Cut a batch of descending lengths into the chunks that cost least together.

    A chunk costs its longest length times its size, plus ``overhead``. The result is exact, by dynamic programming
    over the end of the last chunk. Chunk i is ``lengths[bounds[i]:bounds[i + 1]]``.
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
