"""The batches of a language model: running text, tokenised once and cut into windows of one length."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from isobench.common.errors import UserError
from isobench.common.files import sha256_json
from isobench.common.progress import track_progress
from isobench.config.schema import Config
from isobench.data.batches.loaders import ModelInputs, check_drop_last, make_sorted_loader, make_training_loader
from isobench.data.batches.tokens import TEXTS_PER_CALL, EpochSampler
from isobench.data.cache import load_or_make_arrays, name_cached_file
from isobench.data.sources import read_texts

VERSION = 1  # of the cached tokens, part of their name


@dataclass
class Windows(Dataset):
    """N windows of T tokens, [N, T]."""

    ids: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> int:
        return index  # the collator gathers a whole batch at once

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each window, [N]."""
        return np.full(len(self.ids), self.ids.shape[1])

    def collate(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return a batch: ``ids`` [B, T] and ``index`` [B], the windows' places."""
        index = np.asarray(indices)
        return {"ids": torch.from_numpy(self.ids[index].astype(np.int64)), "index": torch.from_numpy(index)}


class WindowLoaders:
    """The training and dev batches of a run that models language.

    ``task.train_samples`` and ``task.dev_samples`` count windows, the first ones of a split. ``sampler``,
    ``batch_size``, ``warnings``: as those of `isobench.data.batches.loaders.Loaders`.
    """

    def __init__(self, cfg: Config, inputs: ModelInputs, data: dict[str, str], order_seed: int) -> None:
        self.cfg, self.inputs, self.data = cfg, inputs, data
        self.sizes: dict[str, int] = {}
        self.warnings: list[str] = []
        task = cfg.task
        if task.max_length > inputs.max_positions:
            raise UserError(
                f"task.max_length={task.max_length}: encoder={cfg.encoder.name} reads at most {inputs.max_positions} "
                "tokens: set a smaller one"
            )
        self.max_length = task.max_length
        self.train_tokens = self._load_or_cut(task.train_split, task.train_samples)
        dev = [self._load_or_cut(split, task.dev_samples) for split in task.dev_splits]
        self.batch_size = cfg.optimization.batch_size
        check_drop_last(cfg, len(self.train_tokens))
        self.sampler = EpochSampler(len(self.train_tokens), order_seed)
        collate = self.train_tokens.collate
        self.train = make_training_loader(cfg, self.train_tokens, self.batch_size, self.sampler, collate)
        size = cfg.trainer.eval_batch_size
        self.dev = [make_sorted_loader(cfg, own, own.lengths, size, own.collate) for own in dev]

    def describe_data(self) -> dict[str, Any]:
        """Return the record's entries on the data: windows by split, and their length."""
        return {"examples": self.sizes, "max_length": self.max_length}

    def _load_or_cut(self, split: str, limit: int | None) -> Windows:
        task = self.cfg.task
        assert task.language is not None
        threshold = task.language.subsample
        tokenizer = [self.inputs.fingerprint, self.inputs.tokenizer.eos_token_id]
        settings = [list(task.text), self.max_length, tokenizer, threshold]
        key = sha256_json([VERSION, self.data, split, settings])
        file = name_cached_file(self.cfg.data.cache, "windows", f"{task.name}-{split}", key)

        def cut() -> dict[str, np.ndarray]:
            ids = tokenise_running_text(read_texts(task, self.cfg.data, split), self.inputs.tokenizer)
            ids = ids if threshold is None else subsample(ids, threshold)
            if len(ids) < self.max_length:
                raise UserError(
                    f"task={task.name}: {split} has {len(ids)} tokens, fewer than a window of {self.max_length}: "
                    "set a smaller task.max_length, or name a longer text"
                )
            whole = len(ids) // self.max_length * self.max_length
            return {"ids": ids[:whole].reshape(-1, self.max_length)}

        windows = Windows(load_or_make_arrays(file, cut)["ids"][:limit])
        self.sizes[split] = len(windows)
        return windows


def tokenise_running_text(texts: Sequence[str], tokenizer: Any) -> np.ndarray:
    """Tokenise texts, one after the other, an end token after each: [tokens] int32."""
    parts = []
    for start in track_progress(range(0, len(texts), TEXTS_PER_CALL), "tokens, once"):
        part = list(texts[start : start + TEXTS_PER_CALL])
        rows = tokenizer(part, add_special_tokens=False, padding=False)["input_ids"]
        parts.append(np.array([i for ids in rows for i in (*ids, tokenizer.eos_token_id)], np.int32))
    return np.concatenate(parts)


def subsample(ids: np.ndarray, threshold: float) -> np.ndarray:
    """Leave out frequent tokens at random, always the same ones (Mikolov et al. 2013): [tokens] -> fewer.

    A token whose share of the text is f stays with probability sqrt(threshold / f), at most 1.
    """
    shares = np.bincount(ids) / len(ids)
    stays = np.minimum(1.0, np.sqrt(threshold / shares[ids]))
    return ids[np.random.default_rng(0).random(len(ids)) < stays]
