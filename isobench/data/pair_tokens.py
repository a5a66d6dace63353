"""Tokenised sources and targets: made once, kept on disk, batched without padding that is computed for nothing."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from safetensors.numpy import load_file, save_file
from torch.utils.data import Dataset

from isobench.common.files import write_cached
from isobench.data.pairs import TextPairs
from isobench.data.tokens import find_chunk_bounds, pad_rows

VERSION = 1  # of the cached files' content; part of their name
TEXTS_PER_CALL = 10_000  # texts a call of the tokenizer


@dataclass
class TokenisedTexts:
    """N tokenised texts, flat: text i is ``ids[offsets[i]:offsets[i + 1]]``; ``cut`` of them were longer."""

    ids: np.ndarray
    offsets: np.ndarray
    truncated_count: int

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, [N]."""
        return np.diff(self.offsets)


@dataclass
class PairTokens(Dataset):
    """N examples: what is read and what is to be written."""

    sources: TokenisedTexts
    targets: TokenisedTexts

    def __len__(self) -> int:
        return len(self.sources.offsets) - 1

    def __getitem__(self, index: int) -> int:
        return index  # the collator gathers a whole batch at once

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, source and target, [N]."""
        return self.sources.lengths + self.targets.lengths


class TokenBatches(Dataset):
    """The batches of at most ``limit`` padded tokens into which one random order of the examples is cut.

    A batch's padded tokens are its examples times the longest of their sources plus the longest of their targets. An
    example that is longer than the limit is a batch by itself. The batches stay; every epoch has another order.
    """

    def __init__(self, tokens: PairTokens, limit: int, seed: int) -> None:
        self.tokens, self.limit = tokens, limit
        order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(seed)).tolist()
        self.batches = batch_by_tokens(order, tokens.sources.lengths, tokens.targets.lengths, limit)

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> list[int]:
        return self.batches[index]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, [N]."""
        return self.tokens.lengths


def batch_by_tokens(order: Sequence[int], sources: np.ndarray, targets: np.ndarray, limit: int) -> list[list[int]]:
    """Consecutive runs of ``order`` whose padded tokens are at most ``limit``; a longer example stands alone."""
    batches: list[list[int]] = []
    longest = (0, 0)
    for i in order:
        longest = max(longest[0], int(sources[i])), max(longest[1], int(targets[i]))
        if not batches or (len(batches[-1]) + 1) * sum(longest) > limit:
            batches.append([])
            longest = int(sources[i]), int(targets[i])
        batches[-1].append(i)
    return batches


def tokenise_pairs(
    pairs: TextPairs, tokenizer: Any, max_length: int, max_target: int, instruction: str, progress_bar: bool
) -> PairTokens:
    """Tokenise sources, each after the ``instruction``, and targets; those that are longer are cut and counted."""
    read = [instruction + text for text in pairs.sources] if instruction else pairs.sources
    return PairTokens(
        tokenise_texts(read, tokenizer, "text", max_length, progress_bar),
        tokenise_texts(pairs.targets, tokenizer, "text_target", max_target, progress_bar),
    )


def tokenise_texts(
    texts: list[str], tokenizer: Any, argument: str, max_length: int, progress_bar: bool
) -> TokenisedTexts:
    """One side's tokens. Only texts that are too long are tokenised twice: a cut one keeps its closing tokens.

    Where a tokenizer puts no closing token (its last but one for mBART, which ends with a language) it is added: a
    model that never sees one never stops.
    """
    closing = tokenizer.eos_token_id
    closes = closing in tokenizer(**{argument: ["a"]})["input_ids"][0][-2:]
    room = max_length - (not closes)
    rows: list[np.ndarray] = []
    cut = 0
    starts = track(
        range(0, len(texts), TEXTS_PER_CALL),
        "tokens, once",
        console=Console(stderr=True),
        transient=True,
        disable=not progress_bar or len(texts) <= TEXTS_PER_CALL,
    )
    for start in starts:
        part = texts[start : start + TEXTS_PER_CALL]
        found = tokenizer(**{argument: part}, padding=False)["input_ids"]
        long = [i for i, row in enumerate(found) if len(row) > room]
        if long:
            limits = {"truncation": True, "max_length": room, "padding": False}
            again = tokenizer(**{argument: [part[i] for i in long]}, **limits)["input_ids"]
            for i, row in zip(long, again, strict=True):
                found[i] = row
        cut += len(long)
        rows += [np.asarray(row if closes else [*row, closing], np.int32) for row in found]
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return TokenisedTexts(np.concatenate(rows), np.concatenate([[0], np.cumsum(lengths)]), cut)


def load_pair_tokens(file: Path) -> PairTokens | None:
    """Tokens from the cache; None if absent or damaged (it is then made again)."""
    try:
        arrays = load_file(file)
        sides = (
            TokenisedTexts(arrays[f"{name}_ids"], arrays[f"{name}_offsets"], int(arrays[f"{name}_cut"][0]))
            for name in ("source", "target")
        )
        return PairTokens(*sides)
    except FileNotFoundError:
        return None
    except Exception:  # safetensors raises its own kinds for a truncated or foreign file
        return None


def save_pair_tokens(tokens: PairTokens, file: Path) -> None:
    """Write tokens to the cache, whole or not at all."""
    arrays: dict[str, np.ndarray] = {}
    for name, part in (("source", tokens.sources), ("target", tokens.targets)):
        arrays |= {
            f"{name}_ids": part.ids,
            f"{name}_offsets": part.offsets,
            f"{name}_cut": np.array([part.truncated_count]),
        }
    write_cached(file, lambda temporary: save_file(arrays, temporary), "token cache")


class PairCollator:
    """Turns example indices into a batch of length-sorted chunks.

    The decoder's states of all chunks are joined before the calibration: the batch's composition, and with it
    IsoBN's covariance, is untouched.

    Args:
        tokens: the examples.
        pad_id: the tokenizer's padding token.
        chunk_overhead: fixed cost of one more call of the model, in tokens; large values give one chunk.
    """

    def __init__(self, tokens: PairTokens, pad_id: int, chunk_overhead: int) -> None:
        self.tokens, self.pad_id, self.chunk_overhead = tokens, pad_id, chunk_overhead
        self.lengths = tokens.lengths

    def __call__(self, indices: Sequence[int]) -> dict[str, Any]:
        """Batch with ``chunks`` (see ``_pad``) and ``index`` [B], the examples in the chunks' order."""
        index = np.asarray(indices)
        order = np.argsort(-self.lengths[index], kind="stable")
        index = index[order]
        bounds = find_chunk_bounds(self.lengths[index].tolist(), self.chunk_overhead)
        chunks = [self._pad(index[a:b]) for a, b in itertools.pairwise(bounds)]
        return {"chunks": chunks, "index": torch.from_numpy(index)}

    def _pad(self, index: np.ndarray) -> dict[str, torch.Tensor]:
        """``input_ids``, ``attention_mask`` [b, S]; ``labels`` [b, T], padded; ``real`` [b, T], where they aren't."""
        sources, targets = self.tokens.sources, self.tokens.targets
        ids, mask, _ = pad_rows(sources.ids, sources.offsets, index, self.pad_id)
        labels, real, _ = pad_rows(targets.ids, targets.offsets, index, self.pad_id)
        return {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "labels": torch.from_numpy(labels),
            "real": torch.from_numpy(real),
        }
