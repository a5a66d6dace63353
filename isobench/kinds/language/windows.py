"""The batches of a language model: running text, tokenised once and cut into windows of one length."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from isobench.common.errors import refuse
from isobench.common.files import sha256_json
from isobench.common.progress import track_progress
from isobench.config.schema import Config
from isobench.data.batches.loaders import ModelInputs, SplitLoaders
from isobench.data.batches.tokens import TEXTS_PER_CALL, Rows
from isobench.data.cache import load_or_make_arrays, name_cached_file
from isobench.data.sources import read_texts, require_unchanged

VERSION = 1  # of the cached tokens, part of their name


@dataclass
class Windows(Rows):
    """N windows of T tokens, [N, T]."""

    ids: np.ndarray

    @property
    def lengths(self) -> np.ndarray:  # type: ignore[override]
        """Number of tokens of each window, [N]."""
        return np.full(len(self.ids), self.ids.shape[1])

    def collate(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return a batch: ``ids`` [B, T] and ``index`` [B], the windows' places."""
        index = np.asarray(indices)
        return {"ids": torch.from_numpy(self.ids[index].astype(np.int64)), "index": torch.from_numpy(index)}


def load_windows(cfg: Config, inputs: ModelInputs, data: dict[str, str], order_seed: int) -> SplitLoaders:
    """Make the batches of windows; ``task.train_samples`` and ``task.dev_samples`` take the first ones of a split."""
    task = cfg.task
    most = f"task.max_length must be at most {inputs.max_positions}, which encoder={cfg.encoder.name} reads"
    refuse((task.max_length > inputs.max_positions, most))
    splits = {split: _load_or_cut(cfg, inputs, data, split, limit) for split, limit in task.limits.items()}
    return SplitLoaders(cfg, inputs, splits, task.max_length, order_seed)


def _load_or_cut(cfg: Config, inputs: ModelInputs, data: dict[str, str], split: str, limit: int | None) -> Windows:
    task = cfg.task
    assert task.language is not None
    threshold = task.language.subsample
    tokenizer = [inputs.fingerprint, inputs.tokenizer.eos_token_id]
    key = sha256_json([VERSION, data, split, [list(task.text), task.max_length, tokenizer, threshold]])
    file = name_cached_file(cfg.data.cache, "windows", f"{task.name}-{split}", key)

    def cut() -> dict[str, np.ndarray]:
        texts = read_texts(task, cfg.data, split)
        require_unchanged(task, cfg.data, data)
        ids = tokenise_running_text(texts, inputs.tokenizer)
        ids = ids if threshold is None else subsample(ids, threshold)
        few = f"task={task.name}: {split} has {len(ids)} tokens, fewer than a window of {task.max_length}"
        refuse((len(ids) < task.max_length, few))
        whole = len(ids) // task.max_length * task.max_length
        return {"ids": ids[:whole].reshape(-1, task.max_length)}

    return Windows(load_or_make_arrays(file, cut)["ids"][:limit])


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
