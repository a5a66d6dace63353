"""Count how often each token of a vocabulary occurs in a corpus."""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isobench.analyses.subject import Subject
from isobench.common.errors import UserError
from isobench.common.progress import track_progress
from isobench_papers.too_much_in_common.corpus import TEXTS_PER_BATCH, Corpus


def track_batches(corpus: Corpus, what: str) -> Iterable[list[str]]:
    return track_progress(corpus.iter_batches(), what, total=-(-corpus.text_count // TEXTS_PER_BATCH))


def count_tokens(batches: Iterable[list[str]], tokenizer: Any) -> np.ndarray:
    """Count the occurrences of each token in a corpus, without special ones; returns them by token id, [ids]."""
    size = max(tokenizer.get_vocab().values()) + 1
    counted = np.zeros(size, np.int64)
    for texts in batches:
        ids = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]
        counted += np.bincount(np.fromiter(itertools.chain.from_iterable(ids), np.int64), minlength=size)
    return counted


def count_rows(subject: Subject, corpus: Corpus, rows: int) -> Tensor:
    """Count how often the token of each row of a subject's vocabulary occurs in a corpus, [rows] float64."""
    counted = count_tokens(track_batches(corpus, f"tokens, {subject.encoder}"), subject.tokenizer)
    return fit_to_rows(counted, rows)


def fit_to_rows(counts: np.ndarray, rows: int) -> Tensor:
    """Turn counts by token id into one for each row of a vocabulary: [ids] -> [rows] float64.

    Rows without a token have the count 0; tokens without a row are left out.
    """
    fitted = np.zeros(rows)
    fitted[: len(counts)] = counts[:rows]
    if not fitted.any():
        raise UserError("the corpus has no tokens; choose another analysis.corpus, or raise analysis.texts")
    return torch.from_numpy(fitted)
