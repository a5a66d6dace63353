"""Decompose symmetric matrices where float64 is slow, as on desktops' graphics cards: in float32, then refined."""

import torch
from torch import Tensor

SMALLEST_SIZE = 64  # of a matrix; smaller ones, such as a classifier's, take little time in any precision
# CUDA devices with at least half as many float64 as float32 operations a second: P100, V100, A100, H100, B200.
FAST_FLOAT64 = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}  # others, such as desktops' cards, have 1/32 or 1/64
REFINEMENTS = 2  # one leaves errors of 2e-4 in A^(-1/2) for 768 dimensions and a condition number of 1e5


def is_float64_slow(device: torch.device) -> bool:
    """Return whether a device computes float64 at 1/16 of the speed of float32 or less."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) not in FAST_FLOAT64


def refined_eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose a positive semi-definite matrix A, [n, n] float64, by float32 decompositions and float64 products.

    A float32 decomposition gives vectors V that mix the small eigenvalues, because it can't see their differences
    beside the large ones. B = V^T A V, computed in float64, is nearly diagonal. log(B) has the eigenvectors of B, and
    its entries are of like size, so a float32 decomposition of it tells small eigenvalues apart too. It is computed
    to first order in what is off the diagonal of B, and therefore this refinement is done twice.

    Functions of A, such as A^(-1/2), agree with float64 to 1e-5 of their norm as long as no eigenvalue is below 1e-5
    times the largest. Vectors of smaller eigenvalues are orthonormal too, but mixed with each other: the eigenvalues
    are then exact to 1e-6 of the largest, not of themselves.

    Returns:
        The eigenvalues [n], ascending, and the eigenvectors [n, n], as columns.
    """
    scale = matrix.diagonal().amax()
    a = matrix / torch.where(scale > 0, scale, 1.0)
    vectors = orthonormalise(torch.linalg.eigh(a.float())[1].double())
    for _ in range(REFINEMENTS):
        logarithm = approximate_logarithm(vectors.T @ (a @ vectors))
        vectors = orthonormalise(vectors @ torch.linalg.eigh(logarithm.float())[1].double())
    values, order = (vectors * (matrix @ vectors)).sum(0).sort()
    return values, vectors[:, order]


def orthonormalise(vectors: Tensor) -> Tensor:
    """Make nearly orthonormal columns [n, n] orthonormal; an error of e becomes one of e^2 (Newton's iteration)."""
    return 1.5 * vectors - 0.5 * (vectors @ (vectors.T @ vectors))


def approximate_logarithm(b: Tensor) -> Tensor:
    """Compute log(B) of a nearly diagonal positive semi-definite B, [n, n], to first order (Daleckii & Krein 1965).

    Entry (i, j) is B_ij (log d_i - log d_j) / (d_i - d_j), with d the diagonal of B. Diagonal entries at rounding
    error are raised to it.
    """
    d = b.diagonal()
    d = d.clamp_min(len(d) * torch.finfo(d.dtype).eps)
    logs = d.log()
    difference = logs - logs[:, None]
    quotient = torch.where(difference.abs() > 1e-4, difference / (d - d[:, None]), (d * d[:, None]).rsqrt())
    result = b * quotient
    result.diagonal().copy_(logs)
    return (result + result.T) / 2
