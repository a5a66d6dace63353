"""The centring family (Bis et al. 2021): as functions on matrices, and as a calibration of sentence embeddings."""

import math
from typing import Literal

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32
from isobench.calibration.batch_statistics import batch_covariance, center_batch
from isobench.common.linalg import eigh, gram


def center(matrix: Tensor) -> Tensor:
    """Rows less their mean: [V, d] -> [V, d]."""
    return matrix - matrix.mean(0)


def center_scaled(matrix: Tensor) -> Tensor:
    """Rows less their own length times the mean direction: w - |w| mean(w / |w|); [V, d] -> [V, d].

    A zero row has no direction: it counts in the mean as zero and stays zero.
    """
    return matrix - _lengths(matrix) * _unit_rows(matrix).mean(0)


def all_but_the_top(matrix: Tensor, D: int, centered_projection: bool = True) -> Tensor:
    """Centred rows less their part in the D top principal directions: [V, d] -> [V, d].

    C - C U_D^T U_D with C centred (Too-much-in-common, Eqs. 9-11); ``centered_projection=False`` subtracts the
    projection of the UNcentred rows, as the original All-but-the-Top (Mu & Viswanath 2018).

    Args:
        matrix: [V, d].
        D: how many directions, 0 to d.
        centered_projection: which rows are projected.

    Raises:
        ValueError: D outside 0..d.
    """
    _check_direction_count(D, matrix.shape[1])
    centred = center(matrix)
    top = torch.linalg.eigh(gram(centred)).eigenvectors[:, matrix.shape[1] - D :].to(matrix.dtype)  # (d, D)
    projected = centred if centered_projection else matrix
    return centred - projected @ top @ top.T


def whiten(matrix: Tensor, k: int | None = None) -> Tensor:
    """BERT-whitening: (h - mu) U diag(1 / sqrt(s)), first k columns; [V, d] -> [V, k] (Su et al. 2021).

    Covariance with ddof 1, its eigenvalues s descending, in float64 inside. Directions without variance, where
    the formula would divide by zero, become 0.

    Raises:
        ValueError: k outside 1..d, or fewer than two rows.
    """
    rows, dim = matrix.shape
    k = dim if k is None else k
    if not 1 <= k <= dim:
        raise ValueError(f"k must be between 1 and {dim}, not {k}")
    if rows < 2:
        raise ValueError("whitening needs at least two rows")
    centred = center(matrix.double())
    values, vectors = torch.linalg.eigh(gram(centred) / (rows - 1))
    values, vectors = values.flip(0)[:k], vectors.flip(1)[:, :k]  # (k,), (d, k)
    noise = values.max() * dim * torch.finfo(torch.float64).eps
    scale = torch.where(values > noise, values.clamp_min(noise).rsqrt(), 0.0)
    return (centred @ (vectors * scale)).to(matrix.dtype)


class Centering(Calibration):
    """The same three on sentence embeddings, by moving statistics of the batches.

    ``center``: h - mu. ``center_scaled``: h - |h| m, with m the mean of h / |h|. ``all_but_the_top``: h - mu less
    its part in the ``D`` top principal directions, or, with ``centered_projection=False``, less h's. As in IsoBN
    the statistics are detached, start from the first batch, and serve training and evaluation alike; before
    training, and for ``D`` directions before there is any variance, nothing is taken away. Float32 or better,
    eigenvectors float64.

    Args:
        dim: width d of the embedding.
        kind: which of the three.
        D: directions, for ``all_but_the_top``; None for ceil(d / 100), as Too-much-in-common's code has it.
        centered_projection: see ``all_but_the_top``.
        momentum: weight of the newest batch.

    Raises:
        ValueError: an unknown kind, or a number out of its range.
    """

    mean: Tensor  # [d], of h, or of h's direction under center_scaled
    covariance: Tensor  # [d, d], empty but for all_but_the_top
    top: Tensor  # [d, D], likewise
    batches: Tensor  # []

    def __init__(
        self,
        dim: int,
        kind: Literal["center", "center_scaled", "all_but_the_top"] = "center",
        D: int | None = None,
        centered_projection: bool = True,
        momentum: float = 0.1,
    ) -> None:
        super().__init__(dim)
        if kind not in ("center", "center_scaled", "all_but_the_top"):
            raise ValueError(f"kind must be center, center_scaled or all_but_the_top, not {kind!r}")
        if not 0 < momentum <= 1:
            raise ValueError(f"momentum must be in (0, 1], not {momentum}")
        count = math.ceil(dim / 100) if D is None else D
        _check_direction_count(count, dim)
        self.kind, self.centered_projection, self.momentum = kind, centered_projection, momentum
        width, count = (dim, count) if kind == "all_but_the_top" else (0, 0)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("covariance", torch.zeros(width, width))
        self.register_buffer("top", torch.zeros(width, count))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> [B, d]; updates the moving statistics in training."""
        with torch.autocast(h.device.type, enabled=False):
            given = promote_to_float32(h)
            if self.training:
                self._update(given.detach())
            if self.kind == "center_scaled":
                return (given - _lengths(given) * self.mean).to(h.dtype)
            centred = given - self.mean
            if self.kind == "center":
                return centred.to(h.dtype)
            projected = centred if self.centered_projection else given
            top = self.top.to(given.dtype)
            return (centred - projected @ top @ top.T).to(h.dtype)

    @torch.no_grad()
    def _update(self, h: Tensor) -> None:
        weight = torch.where(self.batches == 0, 1.0, self.momentum)
        mean, centred = center_batch(_unit_rows(h) if self.kind == "center_scaled" else h)
        self.mean.lerp_(mean.to(self.mean.dtype), weight)
        self.batches += 1
        if self.top.numel():
            self.covariance.lerp_(batch_covariance(centred).to(self.covariance.dtype), weight)
            self.top.copy_(_top_eigenvectors(self.covariance, self.top.shape[1]))


def _lengths(matrix: Tensor) -> Tensor:
    """[V, d] -> [V, 1]."""
    return torch.linalg.vector_norm(matrix, dim=1, keepdim=True)


def _unit_rows(matrix: Tensor) -> Tensor:
    """Unit rows, [V, d]; a zero row stays zero."""
    norms = _lengths(matrix)
    return matrix / torch.where(norms > 0, norms, 1.0)


def _top_eigenvectors(covariance: Tensor, count: int) -> Tensor:
    """The eigenvectors of the largest eigenvalues, [d, count]; zeros where there is no variance, not noise."""
    values, vectors = eigh(covariance.double())
    values, vectors = values[len(values) - count :], vectors[:, len(vectors) - count :]
    noise = covariance.shape[0] * torch.finfo(covariance.dtype).eps * values.abs().amax() if count else 0.0
    return (vectors * (values > noise)).to(covariance.dtype)


def _check_direction_count(count: int, dim: int) -> None:
    if not 0 <= count <= dim:
        raise ValueError(f"D must be between 0 and {dim}, not {count}")
