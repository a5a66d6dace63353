"""Exact products of tall matrices, in float64."""

import torch
from torch import Tensor

GRAM_BLOCKS = 6  # of a Gram matrix's columns: 7/12 of the whole product
PIECE_ROWS = 4096  # rows made float64 at a time
GRAM_ROWS_ON_CPU = 512  # the same for a Gram product: as many as stay in a CPU's cache
SUM_ROWS_ON_CPU = 256  # the same where they are read once


def to_float64(x: Tensor) -> Tensor:
    """Detached and in double precision, on the CPU where the device has none (Apple's)."""
    x = x.detach()
    return (x.cpu() if x.device.type == "mps" else x).to(torch.float64)


def gram(matrix: Tensor, origin: Tensor | None = None) -> Tensor:
    """(matrix - origin)^T (matrix - origin), [n, n] float64, of [m, n].

    One half of it is computed, with a piece of the rows at a time in float64.
    """
    width = matrix.shape[1]
    result = torch.zeros(width, width, dtype=torch.float64, device=matrix.device)
    bounds = range(0, width, -(-width // GRAM_BLOCKS) or 1)
    for rows in matrix.split(GRAM_ROWS_ON_CPU if matrix.device.type == "cpu" else PIECE_ROWS):
        precise = to_float64(rows) if origin is None else to_float64(rows) - origin
        for start in bounds:
            end = min(start + bounds.step, width)
            result[start:end, start:].addmm_(precise[:, start:end].T, precise[:, start:])
    return torch.triu(result) + torch.triu(result, 1).T


def gram_diagonal(matrix: Tensor, origin: Tensor) -> Tensor:
    """The diagonal of ``gram(matrix, origin)``, [n] float64, without the rest: sums of squared distances."""
    total = torch.zeros_like(origin)
    for rows in matrix.detach().split(SUM_ROWS_ON_CPU if matrix.device.type == "cpu" else PIECE_ROWS):
        total += (to_float64(rows) - origin).square().sum(0)
    return total


def row_mean(matrix: Tensor) -> Tensor:
    """Mean of the rows [m, n], [n] float64, by their distance from the first: of equal rows it is exactly the row."""
    origin = to_float64(matrix[0])
    total = torch.zeros_like(origin)
    for rows in matrix.detach().split(SUM_ROWS_ON_CPU if matrix.device.type == "cpu" else PIECE_ROWS):
        total += (to_float64(rows) - origin).sum(0)
    return origin + total / len(matrix)


def row_norms(matrix: Tensor) -> Tensor:
    """Euclidean lengths of the rows [m, n], [m] float64."""
    pieces = (
        torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in matrix.detach().split(SUM_ROWS_ON_CPU)
    )
    return torch.cat(list(pieces))


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors of a symmetric [n, n]; NaN, no error, if an entry is not finite."""
    finite = matrix.isfinite().all()
    values, vectors = torch.linalg.eigh(torch.where(finite, matrix, torch.zeros_like(matrix)))
    return torch.where(finite, values, torch.nan), torch.where(finite, vectors, torch.nan)
