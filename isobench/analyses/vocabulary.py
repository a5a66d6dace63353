"""Isotropy of one vocabulary: what the tables and figures of common_isotropy show."""

import math
from dataclasses import dataclass

import numpy as np

ROUNDINGS = {"ceil": math.ceil, "floor": math.floor}  # of d / 100, the number of principal components removed


@dataclass
class VocabularyMeasures:
    """What is known of one encoder's input embedding matrix [V, d].

    ``measures``: name -> number. By ``raw`` and ``centred``: ``singular`` values, descending, [min(V, d)]; rows
    ``projected`` onto the first two right singular vectors, [V, 2]; ``norms`` of the rows, [V].
    """

    encoder: str
    measures: dict[str, float]
    singular_values: dict[str, np.ndarray]
    projected: dict[str, np.ndarray]
    norms: dict[str, np.ndarray]
