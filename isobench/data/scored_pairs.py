"""Pairs of texts with human similarity scores: what word similarity and sentence similarity are measured on."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from isobench.common.errors import UserError
from isobench.data.sources import check_texts


@dataclass
class ScoredPairs:
    """N pairs: the first texts, the second texts and the human scores, [N] float64."""

    first: list[str]
    second: list[str]
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)


def make_scored_pairs(columns: Iterable[list[Any]], kind: str, where: str) -> ScoredPairs:
    """Make pairs of three columns, and check them.

    Args:
        columns: the first texts, the second texts and the scores, of equal length.
        kind: what a text is, such as ``word``, for the error message.
        where: the file or data set, for the error message.

    Raises:
        UserError: there are no rows, a text is not text, or a score is not a finite number.
    """
    first, second, scores = columns
    first, second = (check_texts(texts, kind, where) for texts in (first, second))
    try:
        numbers = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} has a score that is not a number") from error
    if not len(numbers) or not np.isfinite(numbers).all():
        raise UserError(f"{where} has {'a score that is not a finite number' if len(numbers) else 'no rows'}")
    return ScoredPairs(first, second, numbers)
