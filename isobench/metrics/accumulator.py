"""Isotropy of vectors that never are in memory together: one pass, mergeable over batches and processes."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from isobench.common.linalg import gram, row_mean, row_norms
from isobench.metrics.isotropy import (
    average_cosine_of,
    effective_rank_of,
    explained_variance_of,
    gram_eigenvalues,
    isoscore_of,
    mean_ratio_of,
    sum_unit_rows,
)


class IsotropyAccumulator:
    """Sums from which every one-pass measure follows; d x d of memory, whatever the number of vectors.

    Scatter is kept around the running mean (Chan et al. 1983), so that a mean far off costs no digits. I1 and I2 need
    the vectors again: ``partition_isotropy_of`` streams them with ``second_moment`` and ``total``.

    Args:
        dim: width d of the vectors.
        device: where sums are kept; batches are moved there.
    """

    def __init__(self, dim: int, device: torch.device | str = "cpu") -> None:
        self.dim, self.count, self.directed = dim, 0, 0
        self.mean = torch.zeros(dim, dtype=torch.float64, device=device)
        self.scatter = torch.zeros(dim, dim, dtype=torch.float64, device=device)
        self.unit_total = torch.zeros(dim, dtype=torch.float64, device=device)
        self.length = torch.zeros((), dtype=torch.float64, device=device)  # sum of the vectors' lengths

    def update(self, h: Tensor) -> Self:
        """Take in a batch, [B, d] with any B.

        Raises:
            ValueError: vectors of another width.
        """
        if h.ndim != 2 or h.shape[1] != self.dim:
            raise ValueError(f"vectors must be [B, {self.dim}], not {tuple(h.shape)}")
        if len(h):
            h = h.detach().to(self.mean.device)
            mean = row_mean(h)
            self._add(len(h), mean, gram(h, mean), *sum_unit_rows(h), row_norms(h).sum())
        return self

    def merge(self, other: "IsotropyAccumulator") -> Self:
        """Take in what another one has seen: another process's, another file's."""
        if other.dim != self.dim:
            raise ValueError(f"an accumulator of width {other.dim} can't be merged into one of {self.dim}")
        device = self.mean.device
        self._add(
            other.count, other.mean.to(device), other.scatter.to(device),
            other.unit_total.to(device), other.directed, other.length.to(device),
        )  # fmt: skip
        return self

    def _add(self, count: int, mean: Tensor, scatter: Tensor, total: Tensor, directed: int, length: Tensor) -> None:
        if not count:
            return
        together = self.count + count
        step = mean - self.mean
        self.scatter += scatter + torch.outer(step, step) * (self.count * count / together)
        self.mean = self.mean + step * (count / together)
        self.count, self.directed = together, self.directed + directed
        self.unit_total += total
        self.length += length

    @property
    def covariance(self) -> Tensor:
        """[d, d], divided by N."""
        return self.scatter / max(1, self.count)

    @property
    def second_moment(self) -> Tensor:
        """H^T H, [d, d]."""
        return self.scatter + self.count * torch.outer(self.mean, self.mean)

    @property
    def total(self) -> Tensor:
        """The vectors' sum, [d]."""
        return self.count * self.mean

    def variances(self) -> Tensor:
        """Squared singular values of the centred vectors, descending, [d]."""
        return gram_eigenvalues(self.scatter)

    def compute(self, k: Sequence[int] = (1, 2, 3)) -> dict[str, float]:
        """``ev<k>``, ``isoscore``, ``average_cosine``, ``effective_rank``, ``mean_ratio``; as the one-shot functions.

        Raises:
            ValueError: nothing was taken in.
        """
        if not self.count:
            raise ValueError("no vectors were taken in")
        values = self.variances()[: self.count]
        shares = explained_variance_of(values, list(k))
        return {
            **{f"ev{number}": share for number, share in zip(k, shares, strict=True)},
            "isoscore": isoscore_of(self.covariance),
            "average_cosine": average_cosine_of(self.unit_total, self.directed),
            "effective_rank": effective_rank_of(values),
            "mean_ratio": mean_ratio_of(self.mean, self.length / self.count),
        }
