"""The centring family of Bis et al. 2021 (Too Much in Common): functions on matrices, and a calibration."""

import math
from typing import Literal

import torch
from torch import Tensor

from isobench.calibration.base import (
    Calibration,
    promote_to_float32,
    require_bool,
    require_choice,
    require_number,
    require_whole_number,
)
from isobench.calibration.batch_statistics import batch_covariance, center_batch
from isobench.common.linalg import (
    Array,
    as_vectors,
    eigh,
    gram,
    to_probabilities,
    weighted_covariance,
    weighted_mean,
)


def center(matrix: Array, weights: Array | None = None) -> Tensor:
    """Subtract the mean row: w -> w - mu; [V, d] -> [V, d].

    With ``weights`` [V], such as the counts of the words in a corpus, mu is the weighted mean: Zipfian centring
    (Yokoi et al. 2024). They are divided by their sum.

    Raises:
        ValueError: if there is no row, there is not one weight for each, one is negative or not finite, or all are 0.
    """
    matrix = as_vectors(matrix)
    if weights is None:
        # The mean of equal numbers is exactly that number: whitening would take rounding noise for variance.
        return matrix - torch.where((matrix == matrix[0]).all(0), matrix[0], matrix.mean(0))
    return matrix - weighted_mean(matrix, to_probabilities(weights, len(matrix))).to(matrix.dtype)


def center_scaled(matrix: Array) -> Tensor:
    """Subtract the mean direction, scaled by each row's length: w -> w - |w| mean(w / |w|); [V, d] -> [V, d].

    A zero row has no direction: it enters the mean as zero and stays zero.
    """
    matrix = as_vectors(matrix)
    precise = matrix.double()  # no square overflows
    return (precise - _lengths(precise) * _unit_rows(precise).mean(0)).to(matrix.dtype)


def all_but_the_top(matrix: Array, D: int, centered_projection: bool = True) -> Tensor:
    """Centre the rows and remove their projection on the D top principal directions: [V, d] -> [V, d].

    C - C U_D^T U_D, with C the centred rows (Too Much in Common, Eqs. 9-11).

    Args:
        D: number of directions, 0 to d.
        centered_projection: False subtracts the projection of the rows as they are, not of the centred ones: the
            original All-but-the-Top (Mu & Viswanath 2018).
    """
    matrix = as_vectors(matrix)
    _check_direction_count(D, matrix.shape[1])
    centred = center(matrix)
    directions = eigh(gram(centred))[1][:, matrix.shape[1] - D :].to(matrix.dtype)  # [d, D]
    return _remove_projection(centred, centred if centered_projection else matrix, directions)


def whiten(matrix: Array, k: int | None = None, weights: Array | None = None) -> Tensor:
    """Whiten rows [V, d] as BERT-whitening does: (h - mu) U diag(1 / sqrt(s)), its first k columns (Su et al. 2021).

    U and s are the eigenvectors and eigenvalues, descending, of the unbiased covariance, computed in float64. A
    direction without variance, where the formula would divide by zero, becomes 0.

    With ``weights`` [V], such as the counts of the words in a corpus, it is Zipfian whitening (Yokoi et al. 2024):
    with p the weights divided by their sum, mu is the sum of p_i h_i, and the covariance is the sum of
    p_i (h_i - mu)(h_i - mu)^T. Rows of weight 0 are transformed too.

    Raises:
        ValueError: if k is outside 1..d, there are fewer than two rows, or the weights are wrong as in ``center``.
    """
    matrix = as_vectors(matrix)
    rows, dim = matrix.shape
    k = dim if k is None else k
    if require_whole_number("k", k) > dim:
        raise ValueError(f"k must be between 1 and {dim}, not {k}")
    if rows < 2:
        raise ValueError("whitening needs at least two rows")
    centred = center(matrix.double(), weights)
    if weights is None:
        covariance = gram(centred) / (rows - 1)
    else:
        covariance = weighted_covariance(centred, to_probabilities(weights, rows))
    values, vectors = eigh(covariance)
    values, vectors = values.flip(0)[:k], vectors.flip(1)[:, :k]  # [k], [d, k]
    noise = values.max() * dim * torch.finfo(torch.float64).eps  # the rounding error of a zero eigenvalue
    scale = torch.where(values > noise, values.clamp_min(noise).rsqrt(), 0.0)
    white: Tensor = centred @ (vectors * scale)
    return white.to(matrix.dtype)


class Centering(Calibration):
    """Apply ``center``, ``center_scaled`` or ``all_but_the_top`` to sentence embeddings, by moving averages.

    ``center``: h - mu. ``center_scaled``: h - |h| m, with m the mean of h / |h|. ``all_but_the_top``: h - mu, with
    its projection on the D top principal directions removed. The moving averages are detached, start from the first
    batch, and are used in training and evaluation alike, as in IsoBN. Before training nothing is subtracted, and a
    direction without variance is not removed. All of it is float32 or better; eigenvectors are float64.

    Args:
        kind: which of the three functions; the next two settings are for ``all_but_the_top`` only.
        D: number of directions, 0 to d; None for ceil(d / 100), as in Too Much in Common's code.
        centered_projection: as in the function ``all_but_the_top``.
        momentum: weight of the newest batch in the moving averages, in (0, 1].
    """

    mean: Tensor  # [d]: the mean of h, or for center_scaled of h / |h|
    covariance: Tensor  # [d, d]; [0, 0] unless kind is all_but_the_top
    top: Tensor  # [d, D], the top principal directions as columns; [0, 0] unless kind is all_but_the_top
    batches: Tensor  # [], how many batches the averages hold

    def __init__(
        self,
        dim: int,
        kind: Literal["center", "center_scaled", "all_but_the_top"] = "center",
        D: int | None = None,
        centered_projection: bool = True,
        momentum: float = 0.1,
    ) -> None:
        super().__init__(dim)
        self.kind = require_choice("kind", kind, ("center", "center_scaled", "all_but_the_top"))
        self.centered_projection = require_bool("centered_projection", centered_projection)
        self.momentum = require_number("momentum", momentum, above=0, at_most=1)
        if kind != "all_but_the_top" and (D is not None or not centered_projection):
            raise ValueError(f"D and centered_projection have no effect with kind={kind}: leave them out")
        count = math.ceil(dim / 100) if D is None else D
        _check_direction_count(count, dim)
        width, count = (dim, count) if kind == "all_but_the_top" else (0, 0)
        self.least_batch = 2 if width else 1  # one row has no variance
        self.least_average = max(self.least_average, count + 1)  # fewer rows have no variance in some direction
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("covariance", torch.zeros(width, width))
        self.register_buffer("top", torch.zeros(width, count))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, h: Tensor) -> Tensor:
        """Centre embeddings [B, d] -> [B, d]; in training first update the moving averages."""
        with torch.autocast(h.device.type, enabled=False):
            x = promote_to_float32(h)
            if self.training:
                self._update_statistics(x.detach())
            if self.kind == "center_scaled":
                return (x - _lengths(x) * self.mean).to(h.dtype)
            centred = x - self.mean
            if self.kind == "center":
                return centred.to(h.dtype)
            projected = centred if self.centered_projection else x
            return _remove_projection(centred, projected, self.top.to(x.dtype)).to(h.dtype)

    @torch.no_grad()
    def _update_statistics(self, h: Tensor) -> None:
        weight = torch.where(self.batches == 0, 1.0, self.momentum)
        mean, centred = center_batch(_unit_rows(h) if self.kind == "center_scaled" else h)
        self.mean.lerp_(mean.to(self.mean.dtype), weight)
        self.batches += 1
        if self.top.numel():
            self.covariance.lerp_(batch_covariance(centred).to(self.covariance.dtype), weight)
            values, vectors = eigh(self.covariance.double())
            values, vectors = values[-self.top.shape[1] :], vectors[:, -self.top.shape[1] :]
            noise = self.dim * torch.finfo(self.covariance.dtype).eps * values.abs().amax()
            self.top.copy_(vectors * (values > noise))


def _remove_projection(rows: Tensor, projected: Tensor, directions: Tensor) -> Tensor:
    """Subtract from ``rows`` the projection of ``projected``, both [V, d], on orthonormal columns [d, D]."""
    projection: Tensor = projected @ directions @ directions.T
    return rows - projection


def _lengths(matrix: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(matrix, dim=1, keepdim=True)
    return lengths


def _unit_rows(matrix: Tensor) -> Tensor:
    """Divide each row by its length: [V, d] -> [V, d]; a zero row stays zero."""
    lengths = _lengths(matrix)
    return matrix / torch.where(lengths == 0, 1.0, lengths)


def _check_direction_count(count: int, dim: int) -> None:
    if require_whole_number("D", count, at_least=0) > dim:
        raise ValueError(f"D must be between 0 and {dim}, not {count}")
