"""Every isotropy measure of vectors that are given in batches: two passes, one accumulator."""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from isobench.metrics.accumulator import IsotropyAccumulator
from isobench.metrics.partition import DirectionKind, partition_isotropy_of


def isotropy_summary(
    rows: Callable[[], Iterable[Tensor]],
    k: Sequence[int] = (1, 2, 3),
    directions: Sequence[DirectionKind] = ("eigenvectors",),
) -> dict[str, float]:
    """What ``IsotropyAccumulator.compute`` gives, and I1 and I2, of vectors in batches [b, d], read twice.

    Args:
        rows: gives the batches from the start, every time it is called.
        k: of the explained variances; those above the number of dimensions are left out.
        directions: of I1 and I2; ``i1`` and ``i2`` are by the first, others carry its name (``i1_symmetric``).

    Returns:
        ``ev<k>``, ``isoscore``, ``average_cosine``, ``effective_rank``, ``mean_ratio``, ``i1``, ``i2``; all NaN if a
        vector is not finite.

    Raises:
        ValueError: no vectors.
    """
    accumulator: IsotropyAccumulator | None = None
    for batch in rows():
        accumulator = accumulator or IsotropyAccumulator(batch.shape[1], batch.device)
        accumulator.update(batch)
    if accumulator is None:
        raise ValueError("no vectors were given")
    fitting = [number for number in k if number <= accumulator.dim]
    endings = ["" if number == 0 else f"_{kind}" for number, kind in enumerate(directions)]
    if not bool(torch.isfinite(accumulator.scatter).all()):
        measures = ("isoscore", "average_cosine", "effective_rank", "mean_ratio")
        names = [*(f"ev{number}" for number in fitting), *measures]
        return dict.fromkeys([*names, *(f"i{n}{ending}" for ending in endings for n in (1, 2))], math.nan)
    found = accumulator.compute(fitting)
    for ending, kind in zip(endings, directions, strict=True):
        pair = partition_isotropy_of(rows, accumulator.second_moment, accumulator.total, kind)
        found |= {f"i1{ending}": pair[0], f"i2{ending}": pair[1]}
    return found
