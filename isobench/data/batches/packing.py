"""Lay the sentences of a batch out in one row of tokens, without padding."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

BLOCKING_DEVICES = ("cpu", "mps")  # copies to these must have ended before they are read, as in Lightning


@dataclass(frozen=True)
class Group:
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

    def to(self, device: torch.device | str, non_blocking: bool) -> "Group":
        """Copy the group to a device."""
        return self._convert(lambda x: x.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Group":
        """Copy the group to memory from which a GPU reads without delay."""
        return self._convert(Tensor.pin_memory)

    def _convert(self, convert: Any) -> "Group":
        converted = [x if x is None else convert(x) for x in (self.tokens, self.places, self.mask)]
        return Group(self.start, self.end, self.sentences, self.length, *converted)


@dataclass(frozen=True)
class Packing:
    """Tell where the B sentences of a batch are in its row of N tokens: in ``groups``, one after the other.

    ``first`` [B]: each sentence's first token. ``last`` [B]: its last token.
    """

    groups: tuple[Group, ...]
    first: Tensor
    last: Tensor

    def to(self, device: torch.device | str) -> "Packing":
        """Copy the packing to a device; the program does not wait for the copies to a GPU, as for other tensors."""
        non_blocking = torch.device(device).type not in BLOCKING_DEVICES
        groups = tuple(group.to(device, non_blocking) for group in self.groups)
        ends = (x.to(device, non_blocking=non_blocking) for x in (self.first, self.last))
        return Packing(groups, *ends)

    def pin_memory(self) -> "Packing":
        """Copy the packing to memory from which a GPU reads without delay."""
        groups = tuple(group.pin_memory() for group in self.groups)
        return Packing(groups, self.first.pin_memory(), self.last.pin_memory())

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
    """Plan a group at ``start`` in the row, with sentences at ``offsets`` [b] from there of ``lengths`` [b]."""
    longest, total = int(lengths.max()), int(lengths.sum())
    sentences = len(lengths)
    if total == longest * sentences:
        return Group(start, start + total, sentences, longest)
    columns = np.arange(longest)
    mask = columns < lengths[:, None]  # (b, T)
    tokens = np.where(mask, offsets[:, None] + columns, offsets[:, None])
    return Group(
        start,
        start + total,
        sentences,
        longest,
        torch.from_numpy(tokens.ravel()),
        torch.from_numpy(np.flatnonzero(mask)),
        torch.from_numpy(mask),
    )
