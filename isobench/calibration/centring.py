"""The centring family (Bis et al. 2021), as functions on matrices."""

import torch
from torch import Tensor


def center(matrix: Tensor) -> Tensor:
    """Rows less their mean: [V, d] -> [V, d]."""
    return matrix - matrix.mean(0)


def center_scaled(matrix: Tensor) -> Tensor:
    """Rows less their own length times the mean direction: w - |w| mean(w / |w|); [V, d] -> [V, d].

    A zero row has no direction: it counts in the mean as zero and stays zero.
    """
    norms = torch.linalg.vector_norm(matrix, dim=1, keepdim=True)  # (V, 1)
    directions = matrix / torch.where(norms > 0, norms, 1.0)
    return matrix - norms * directions.mean(0)


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
    if not 0 <= D <= matrix.shape[1]:
        raise ValueError(f"D must be between 0 and {matrix.shape[1]}, not {D}")
    centred = center(matrix)
    wide = centred.double()
    top = torch.linalg.eigh(wide.T @ wide).eigenvectors[:, matrix.shape[1] - D :].to(matrix.dtype)  # (d, D)
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
    values, vectors = torch.linalg.eigh(centred.T @ centred / (rows - 1))
    values, vectors = values.flip(0)[:k], vectors.flip(1)[:, :k]  # (k,), (d, k)
    noise = values.max() * dim * torch.finfo(torch.float64).eps
    scale = torch.where(values > noise, values.clamp_min(noise).rsqrt(), 0.0)
    return (centred @ (vectors * scale)).to(matrix.dtype)
