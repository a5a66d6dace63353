"""Vocabularies, and how often their tokens occur in a corpus."""

import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from isobench.analyses.subject import Subject, check_no_calibration, iterate_subjects
from isobench.common.errors import UserError
from isobench.common.linalg import to_float64
from isobench_papers.too_much_in_common.corpus import Corpus


def iterate_vocabularies(
    subjects: list[Subject], corpus: Corpus | None
) -> Iterator[tuple[Subject, Tensor, Tensor | None]]:
    """Iterate over subjects: each with its vocabulary, [V, d] float64, and the counts of its rows' tokens, [V].

    The counts are those in a corpus, without special tokens, and None without a corpus. Rows without a token have
    the count 0; tokens without a row are left out.
    """
    check_no_calibration(subjects)
    for subject in iterate_subjects(subjects, "vocabularies"):
        matrix = to_float64(subject.vocabulary())
        counts = count_tokens(subject, corpus, len(matrix)) if corpus else None
        subject.release()  # the rest of the encoder is not needed, and large
        yield subject, matrix, counts


def count_tokens(subject: Subject, corpus: Corpus, rows: int) -> Tensor:
    counted = np.zeros(max(rows, max(subject.tokenizer.get_vocab().values()) + 1))
    for texts in corpus.track(f"tokens, {subject.encoder}"):
        ids = subject.tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
        counted += np.bincount(list(itertools.chain.from_iterable(ids["input_ids"])), minlength=len(counted))
    if not counted[:rows].any():
        raise UserError("the corpus has no tokens; choose another analysis.corpus, or raise analysis.texts")
    return torch.from_numpy(counted[:rows])
