"""Pairs of texts with human similarity scores."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from isobench.common.errors import UserError
from isobench.data.labels import parse_numbers
from isobench.data.sources import check_texts


@dataclass
class ScoredPairs:
    """N pairs: the first texts, the second texts and the human scores, [N] float64; the sub-set of each, if known."""

    first: list[str]
    second: list[str]
    scores: np.ndarray
    parts: list[str] | None = None

    def __len__(self) -> int:
        return len(self.scores)


def make_scored_pairs(columns: Iterable[list[Any]], kind: str, where: str) -> ScoredPairs:
    """Make pairs of three columns (first texts, second texts, scores), and check them.

    ``kind``: what a text is, such as ``word``; ``where``: the file or data set. Error messages name both.
    """
    first, second, scores = columns
    first, second = (check_texts(texts, kind, where) for texts in (first, second))
    numbers = parse_numbers(scores)
    if not np.isfinite(numbers).all():
        row = int(np.isfinite(numbers).argmin())
        raise UserError(f"{where} has a score that is not a finite number: {scores[row]} in row {row + 1}")
    if len(numbers) > 1 and numbers.min() == numbers.max():
        raise UserError(f"{where} has the same score, {numbers[0]:g}, in every row: no correlation exists")
    return ScoredPairs(first, second, numbers)
