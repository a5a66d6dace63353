"""Vocabularies, and how often their tokens occur in a corpus."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from isobench.analyses.subject import Subject, check_no_calibration, iterate_subjects
from isobench.common.errors import UserError
from isobench.common.linalg import to_float64
from isobench.models.tokenization import count_tokens
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
        counts = count_corpus(subject, corpus, len(matrix)) if corpus else None
        subject.release()  # the rest of the encoder is not needed, and large
        yield subject, matrix, counts


def count_corpus(subject: Subject, corpus: Corpus, rows: int) -> Tensor:
    counted = np.zeros(rows)
    for texts in corpus.track(f"tokens, {subject.encoder}"):
        counted += count_tokens(subject.tokenizer, texts, rows)
    if not counted.any():
        raise UserError("the corpus has no tokens; choose another analysis.corpus, or raise analysis.texts")
    return torch.from_numpy(counted)
