"""The measures of one encoder's vocabulary that common_isotropy puts into tables and figures."""

from dataclasses import dataclass

import numpy as np


@dataclass
class VocabularyMeasures:
    """Measures of one encoder's input embedding matrix, [V, d].

    ``measures`` maps a name to a number. The others map ``raw`` and ``centred`` to an array: ``singular_values``,
    descending, [min(V, d)]; ``projected``, the rows on the first two right singular vectors, [V, 2]; ``norms`` of the
    rows, [V].
    """

    encoder: str
    measures: dict[str, float]
    singular_values: dict[str, np.ndarray]
    projected: dict[str, np.ndarray]
    norms: dict[str, np.ndarray]
