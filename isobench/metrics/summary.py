"""All isotropy measures of vectors in batches, and the measures of vectors that need their classes."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from isobench.common.linalg import Array, as_tensor
from isobench.metrics.accumulator import IsotropyAccumulator
from isobench.metrics.clusters import silhouette
from isobench.metrics.coordinates import best_threshold_accuracy
from isobench.metrics.partition import DirectionKind, partition_isotropy_of


def isotropy_summary(
    rows: Callable[[], Iterable[Array]],
    k: Sequence[int] = (1, 2, 3),
    directions: Sequence[DirectionKind] = ("eigenvectors",),
) -> dict[str, float]:
    """Compute the measures of ``IsotropyAccumulator.compute``, I1 and I2, of vectors that are read in batches.

    Args:
        rows: a function that returns all batches [b, d], from the first on, at every call.
        k: for which EV_k; values above d are left out.
        directions: kinds of directions for I1 and I2 (see ``partition_isotropy``). ``i1`` and ``i2`` are those of the
            first kind; the name of any other kind is added, as in ``i1_symmetric``.

    Returns:
        ``ev<k>``, ``isoscore``, ``average_cosine``, ``effective_rank``, ``mean_ratio``, ``coordinate_share``, ``i1``,
        ``i2``; all NaN if an entry of a vector is not finite.
    """
    accumulator: IsotropyAccumulator | None = None
    for batch in rows():
        accumulator = accumulator or IsotropyAccumulator(batch.shape[1], as_tensor(batch).device)
        accumulator.update(batch)
    if accumulator is None:
        raise ValueError("there are no vectors to measure")
    k = [number for number in k if number <= accumulator.dim]
    summary = accumulator.compute(k)
    repeated = partial(_repeat_rows, rows, accumulator.count)
    for kind in directions:
        suffix = "" if kind == directions[0] else f"_{kind}"
        i1, i2 = partition_isotropy_of(repeated, accumulator.second_moment, accumulator.total, kind)
        summary |= {f"i1{suffix}": i1, f"i2{suffix}": i2}
    return summary


def _repeat_rows(rows: Callable[[], Iterable[Array]], expected: int) -> Iterator[Tensor]:
    count = 0
    for batch in rows():
        count += len(batch)
        yield as_tensor(batch)
    if count != expected:
        raise ValueError(f"rows() gave {expected} vectors, then {count}: it must return all batches at each call")


def class_summary(h: Array, labels: Array) -> dict[str, float]:
    """Measure how vectors [N, d] are arranged by their classes [N]: ``silhouette`` and ``threshold_accuracy``.

    The second is the accuracy of the best threshold on a single coordinate. Both are NaN if an entry of a vector is
    not finite.
    """
    h = as_tensor(h)
    if not bool(torch.isfinite(h).all()):
        return {"silhouette": math.nan, "threshold_accuracy": math.nan}
    return {"silhouette": silhouette(h, labels), "threshold_accuracy": best_threshold_accuracy(h, labels)}
