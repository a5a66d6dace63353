"""Products and sums of tall matrices in float64, a piece of the rows at a time, so that memory stays small."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

GRAM_BLOCKS = 6  # blocks of a Gram matrix's columns; with 6, only 7/12 of its entries are computed
PIECE_ROWS = 4096  # rows that are converted to float64 at a time
GRAM_ROWS_ON_CPU = 512  # the same for Gram matrices on a CPU: so few that they stay in its cache
SUM_ROWS_ON_CPU = 256  # the same for sums on a CPU, which read each row once
Array = Tensor | np.ndarray[Any, Any]  # what measures take


def as_tensor(x: Array) -> Tensor:
    """Return a tensor as it is, and a NumPy array as a tensor, which shares the array's memory where it can."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "biuf" and not isinstance(x, np.ma.MaskedArray):
        # A copy where torch can't read the array: of reversed order, of another machine's byte order, or read-only;
        # in float64 where it lacks the type or most functions of it (unsigned numbers, long double).
        kind = np.dtype("f8") if x.dtype.char in "HILQg" else x.dtype.newbyteorder("=")
        x = torch.from_numpy(np.require(x, kind, ["C", "W"]))
    if not isinstance(x, Tensor) or x.is_complex() or x.layout != torch.strided:
        kind = f" of {x.dtype}" if hasattr(x, "dtype") else ""
        raise TypeError(f"a dense tensor or NumPy array of real numbers is needed, not {type(x).__name__}{kind}")
    return x


def as_vectors(x: Array, may_be_empty: bool = False) -> Tensor:
    """Return vectors [N, d] as a tensor; whole numbers become float64. All public measures and methods call this.

    It looks at no entry, so that no GPU waits for it. Every computation on the vectors has to turn a NaN or an
    infinity into NaN: ``eigh`` does, and a comparison must not hide it.

    Raises:
        TypeError: for another kind of object, and for complex, sparse or masked numbers.
        ValueError: for another shape, and unless ``may_be_empty`` for one with a 0.
    """
    x = as_tensor(x)
    if x.ndim != 2 or (0 in x.shape and not may_be_empty):
        raise ValueError(f"vectors [N, d] with at least one row are needed, not {tuple(x.shape)}")
    return x if x.is_floating_point() else to_float64(x)


def as_labelled_vectors(h: Array, labels: Array) -> tuple[Tensor, Tensor]:
    """Return vectors [N, d] and their labels [N] as tensors without gradient, on the device of the vectors."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind == "u":
        labels = labels.astype(np.int64)  # float64 would round them; a number that is too large stays different
    h, labels = as_vectors(h).detach(), as_tensor(labels)
    if labels.shape != h.shape[:1]:
        raise ValueError(f"labels must be [{len(h)}], one for each vector, not {tuple(labels.shape)}")
    if not labels.isfinite().all():
        raise ValueError("labels must be finite: leave out examples without a label")
    return h, labels.to(h.device)


def to_float64(x: Tensor) -> Tensor:
    """Detach a tensor and convert it to float64; from Apple's GPU, which has no float64, move it to the CPU."""
    x = x.detach()
    return (x.cpu() if x.device.type == "mps" else x).to(torch.float64)


def gram(matrix: Tensor, origin: Tensor | None = None) -> Tensor:
    """Compute the Gram matrix (matrix - origin)^T (matrix - origin) in float64: [m, n] -> [n, n].

    ``origin`` [n] is None for zero. The result is symmetric, so only its upper blocks are computed.
    """
    width = matrix.shape[1]
    result = torch.zeros(width, width, dtype=torch.float64, device=matrix.device)
    for rows in matrix.split(GRAM_ROWS_ON_CPU if matrix.device.type == "cpu" else PIECE_ROWS):
        _add_upper_blocks(result, to_float64(rows) if origin is None else to_float64(rows) - origin)
    return torch.triu(result) + torch.triu(result, 1).T


def gram_in_own_precision(matrix: Tensor) -> Tensor:
    """Compute matrix^T matrix in the matrix's own precision, only its upper blocks: [m, n] -> [n, n]."""
    result = matrix.new_zeros(matrix.shape[1], matrix.shape[1])
    _add_upper_blocks(result, matrix)
    return torch.triu(result) + torch.triu(result, 1).T


def _add_upper_blocks(result: Tensor, rows: Tensor) -> None:
    """Add the upper blocks of rows^T rows to a matrix [n, n] in place, from rows [m, n] of the same precision."""
    width = rows.shape[1]
    bounds = range(0, width, -(-width // GRAM_BLOCKS) or 1)
    for start in bounds:
        end = min(start + bounds.step, width)
        result[start:end, start:].addmm_(rows[:, start:end].T, rows[:, start:])


def gram_diagonal(matrix: Tensor, origin: Tensor) -> Tensor:
    """Compute only the diagonal of ``gram(matrix, origin)``: each column's sum of squared deviations, [n] float64."""
    total = torch.zeros_like(origin)
    for rows in matrix.detach().split(SUM_ROWS_ON_CPU if matrix.device.type == "cpu" else PIECE_ROWS):
        total += (to_float64(rows) - origin).square().sum(0)
    return total


def row_mean(matrix: Tensor) -> Tensor:
    """Average rows: [m, n] -> [n] float64.

    The mean is taken of the rows' differences from the first row, so that the mean of equal rows is exactly that row.
    """
    origin = to_float64(matrix[0])
    total = torch.zeros_like(origin)
    for rows in matrix.detach().split(SUM_ROWS_ON_CPU if matrix.device.type == "cpu" else PIECE_ROWS):
        total += (to_float64(rows) - origin).sum(0)
    return origin + total / len(matrix)


def to_probabilities(weights: Array, rows: int) -> Tensor:
    """Divide weights of rows, such as counts of words, by their sum: [rows] -> [rows] float64."""
    p = to_float64(as_tensor(weights))
    if p.shape != (rows,):
        raise ValueError(f"there must be one weight for each of {rows} rows, not weights of shape {tuple(p.shape)}")
    if not (bool((p >= 0).all()) and math.isfinite(total := p.sum().item()) and total > 0):
        raise ValueError("weights must be finite and not negative, and at least one above 0")
    return p / total


def weighted_mean(matrix: Tensor, probabilities: Tensor) -> Tensor:
    """Average rows that have probabilities [m]: [m, n] -> [n] float64.

    The mean is taken of the rows' differences from the likeliest row, so that the mean of equal rows is exactly that
    row, and so is the mean where only one row has a probability above 0.
    """
    origin = to_float64(matrix[probabilities.argmax()])
    total = torch.zeros_like(origin)
    for rows, p in zip(matrix.detach().split(PIECE_ROWS), probabilities.split(PIECE_ROWS), strict=True):
        total += p @ (to_float64(rows) - origin)
    return origin + total


def weighted_covariance(matrix: Tensor, probabilities: Tensor) -> Tensor:
    """Compute the covariance of rows that have probabilities [m], sum of p (w - mu)(w - mu)^T: [m, n] -> [n, n]."""
    mean = weighted_mean(matrix, probabilities)
    result = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=mean.device)
    for rows, p in zip(matrix.detach().split(PIECE_ROWS), probabilities.split(PIECE_ROWS), strict=True):
        result += gram((to_float64(rows) - mean) * p.sqrt()[:, None])
    return result


def scale_rows(vectors: Tensor) -> Tensor:
    """Multiply each row of floats [..., d] by a power of two, so that its largest magnitude is in [0.5, 1).

    This rounds nothing. Afterwards no length over- or underflows, or is near a constant that a library puts in the
    place of small ones. A row of zeros stays.
    """
    largest = vectors.abs().amax(-1, keepdim=True)
    exponent = -torch.frexp(largest).exponent
    half = exponent // 2  # 2^1074 alone overflows
    one = torch.ones_like(largest)
    return vectors * torch.ldexp(one, half) * torch.ldexp(one, exponent - half)


def divide_by_length(vectors: Tensor) -> Tensor:
    """Divide rows [..., d] by their Euclidean lengths, whatever these are, in float64; a row of zeros stays."""
    return torch.nn.functional.normalize(scale_rows(to_float64(vectors)), dim=-1)


def cosine(left: Tensor, right: Tensor) -> Tensor:
    """Compute the cosines of rows [..., d], whatever their lengths are; 0 if one of two is zero."""
    return torch.cosine_similarity(scale_rows(left), scale_rows(right), dim=-1)


def row_norms(matrix: Tensor) -> Tensor:
    """Compute the Euclidean length of each row: [m, n] -> [m] float64."""
    pieces = matrix.detach().split(SUM_ROWS_ON_CPU)
    norms = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in pieces]
    return torch.cat(norms)


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the eigenvalues [n], ascending, and eigenvectors [n, n], as columns, of a symmetric matrix [n, n].

    If an entry is not finite, all are NaN; torch.linalg.eigh would raise an error.
    """
    finite = matrix.isfinite().all()
    values, vectors = torch.linalg.eigh(torch.where(finite, matrix, torch.zeros_like(matrix)))
    return torch.where(finite, values, torch.nan), torch.where(finite, vectors, torch.nan)


def imitate(mean: Tensor, covariance: Tensor) -> Tensor:
    """Make 2d rows of this mean and this covariance, divided by the count: methods see no other statistic."""
    values, vectors = eigh(covariance)
    steps = (vectors * (values.clamp_min(0) * len(mean)).sqrt()).T
    return torch.cat([mean + steps, mean - steps])
