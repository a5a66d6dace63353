"""All isotropy measures of more vectors than fit into memory, in batches, mergeable over processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor

from isobench.common.linalg import Array, as_vectors, gram, row_mean, row_norms
from isobench.metrics.clusters import silhouette
from isobench.metrics.coordinates import best_threshold_accuracy, coordinate_share_of
from isobench.metrics.isotropy import (
    average_cosine_of,
    effective_rank_of,
    explained_variance_of,
    gram_eigenvalues,
    isoscore_of,
    list_counts,
    mean_ratio_of,
    sum_unit_rows,
)
from isobench.metrics.partition import DirectionKind, partition_isotropy_of


class IsotropyAccumulator:
    """Sums over vectors, from which all measures but I1 and I2 follow; memory d x d, whatever the number of vectors.

    The scatter is taken around the running mean (Chan et al. 1983), so that a mean far from 0 costs no precision. I1
    and I2 need a second pass over the vectors: ``partition_isotropy_of``, with ``second_moment`` and ``total``.

    Args:
        dim: width d of the vectors.
        device: where the sums are kept; batches are moved there.
    """

    def __init__(self, dim: int, device: torch.device | str = "cpu") -> None:
        if not isinstance(dim, int | np.integer) or dim < 1:
            raise ValueError(f"dim must be a whole number, at least 1, not {dim!r}")
        self.dim = int(dim)
        self.count = 0  # vectors
        self.nonzero_count = 0  # vectors that are not zero: only they have a direction
        self.mean = torch.zeros(dim, dtype=torch.float64, device=device)
        self.scatter = torch.zeros(dim, dim, dtype=torch.float64, device=device)  # of the centred vectors
        self.unit_sum = torch.zeros_like(self.mean)  # of the vectors divided by their lengths
        self.length_sum = torch.zeros((), dtype=torch.float64, device=device)

    def update(self, h: Array) -> Self:
        """Add a batch of vectors, [B, d] with any B, and return the accumulator."""
        h = as_vectors(h, may_be_empty=True)
        if h.shape[1] != self.dim:
            raise ValueError(f"vectors must be [B, {self.dim}], not {tuple(h.shape)}")
        if len(h):
            h = h.detach().to(self.mean.device)
            mean = row_mean(h)
            self._add(len(h), mean, gram(h, mean), *sum_unit_rows(h), row_norms(h).sum())
        return self

    def merge(self, other: "IsotropyAccumulator") -> Self:
        """Add the vectors of another accumulator, such as another process's, and return this one."""
        if not isinstance(other, IsotropyAccumulator):
            raise TypeError(f"an accumulator is merged, not {type(other).__name__}: add vectors by update")
        if other.dim != self.dim:
            raise ValueError(f"an accumulator of width {other.dim} can't be merged into one of {self.dim}")
        device = self.mean.device
        self._add(
            other.count, other.mean.to(device), other.scatter.to(device),
            other.unit_sum.to(device), other.nonzero_count, other.length_sum.to(device),
        )  # fmt: skip
        return self

    def _add(
        self, count: int, mean: Tensor, scatter: Tensor, unit_sum: Tensor, nonzero_count: int, length_sum: Tensor
    ) -> None:
        """Merge the sums of another set of vectors into these (Chan et al. 1983); an empty set changes nothing.

        ``mean`` [d] and ``scatter`` [d, d] are of that set alone: its scatter is around its own mean.
        """
        if not count:
            return
        total_count = self.count + count
        shift = mean - self.mean
        self.scatter += scatter + torch.outer(shift, shift) * (self.count * count / total_count)
        self.mean = self.mean + shift * (count / total_count)
        self.count, self.nonzero_count = total_count, self.nonzero_count + nonzero_count
        self.unit_sum += unit_sum
        self.length_sum += length_sum

    @property
    def covariance(self) -> Tensor:
        """The vectors' covariance, [d, d], divided by N."""
        return self.scatter / max(1, self.count)

    @property
    def second_moment(self) -> Tensor:
        """H^T H, [d, d], for the vectors H [N, d] as they are, not centred."""
        return self.scatter + self.count * torch.outer(self.mean, self.mean)

    @property
    def total(self) -> Tensor:
        """The sum of the vectors, [d]."""
        return self.count * self.mean

    def compute(self, k: int | Sequence[int] = (1, 2, 3)) -> dict[str, float]:
        """Compute all measures but I1 and I2, equal to those of the functions of the same names.

        ``k``: for which EV_k, the explained variance of the top k components. Returns ``ev<k>`` for each k,
        ``isoscore``, ``average_cosine``, ``effective_rank``, ``mean_ratio``, ``coordinate_share``.
        """
        if not self.count:
            raise ValueError("no vectors were added: call update first")
        values = gram_eigenvalues(self.scatter)[: self.count]
        k = list_counts(k)
        return {
            **{f"ev{number}": share for number, share in zip(k, explained_variance_of(values, k), strict=True)},
            "isoscore": isoscore_of(self.covariance),
            "average_cosine": average_cosine_of(self.unit_sum, self.nonzero_count),
            "effective_rank": effective_rank_of(values),
            "mean_ratio": mean_ratio_of(self.mean, self.length_sum / self.count),
            "coordinate_share": coordinate_share_of(self.scatter.diagonal()),
        }


def isotropy_summary(
    rows: Array | Callable[[], Iterable[Array]],
    k: int | Sequence[int] = (1, 2, 3),
    directions: DirectionKind | Sequence[DirectionKind] = ("eigenvectors",),
) -> dict[str, float]:
    """Compute the measures of ``IsotropyAccumulator.compute``, I1 and I2, of vectors [N, d].

    Args:
        rows: the vectors; or, to read them in batches, a function that returns all batches [b, d] at every call.
        k: for which EV_k, one or several; values above d are left out.
        directions: kinds of directions for I1 and I2, one or several (see ``partition_isotropy``). ``i1`` and ``i2``
            are those of the first kind; the name of any other kind is added, as in ``i1_symmetric``.

    Returns:
        ``ev<k>``, ``isoscore``, ``average_cosine``, ``effective_rank``, ``mean_ratio``, ``coordinate_share``, ``i1``,
        ``i2``; all NaN if an entry of a vector is not finite.
    """
    read = rows if callable(rows) else partial(iter, [as_vectors(rows)])
    accumulator: IsotropyAccumulator | None = None
    for batch in (as_vectors(batch, may_be_empty=True) for batch in read()):
        accumulator = accumulator or IsotropyAccumulator(batch.shape[1], batch.device)
        accumulator.update(batch)
    if accumulator is None:
        raise ValueError("there are no vectors to measure")
    k = [number for number in list_counts(k) if number <= accumulator.dim]
    kinds: Sequence[DirectionKind] = [directions] if isinstance(directions, str) else directions
    summary = accumulator.compute(k)
    repeated = partial(_repeat_rows, read, accumulator.count)
    for kind in kinds:
        suffix = "" if kind == kinds[0] else f"_{kind}"
        i1, i2 = partition_isotropy_of(repeated, accumulator.second_moment, accumulator.total, kind)
        summary |= {f"i1{suffix}": i1, f"i2{suffix}": i2}
    return summary


def _repeat_rows(rows: Callable[[], Iterable[Array]], expected: int) -> Iterator[Tensor]:
    count = 0
    for batch in rows():
        count += len(batch)
        yield as_vectors(batch, may_be_empty=True)
    if count != expected:
        raise ValueError(f"rows() gave {expected} vectors, then {count}: it must return all batches at each call")


def class_summary(h: Array, labels: Array) -> dict[str, float]:
    """Measure how vectors [N, d] are arranged by their classes [N]: ``silhouette`` and ``threshold_accuracy``.

    The second is the accuracy of the best threshold on a single coordinate.
    """
    return {"silhouette": silhouette(h, labels), "threshold_accuracy": best_threshold_accuracy(h, labels)}
