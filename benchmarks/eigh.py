"""Compare float64 eigendecompositions with float32 ones that are refined, on a GPU if there is one.

    python benchmarks/eigh.py [--rounds 10] [--size 768]

Whitening, all-but-the-top and spectrum control decompose a matrix in float64 at each step, and many GPUs are slow in
float64. A float32 decomposition gives A^(-1/2) to 1e-5 if it is refined once and the condition number is at most 1e4,
or refined twice and at most 1e5. It is not in isobench, because it can't be expected to pay. Refined once, it takes
16 n^3 float64 operations and two float32 decompositions; a float64 decomposition takes about 9 n^3 or less (Golub &
Van Loan, Section 8.3). No GPU was available: a speed-up above 1 on a GPU would show that it pays there.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial

from common import median_ratio, time_alternately, time_call, write_result

import torch
from torch import Tensor

CONDITIONS = (1e2, 1e4, 1e5)
Decomposition = Callable[[Tensor], tuple[Tensor, Tensor]]


def refined_eigh(matrix: Tensor, refinements: int) -> tuple[Tensor, Tensor]:
    """Decompose a positive definite matrix A, [n, n] float64, by float32 decompositions and float64 products.

    A float32 decomposition gives vectors V that mix small eigenvalues, because it can't see their differences beside
    the large ones. B = V^T A V, computed in float64, is nearly diagonal. log(B) has the eigenvectors of B, and its
    entries are of like size, so a float32 decomposition of it tells small eigenvalues apart too.

    Returns:
        The eigenvalues [n], and the eigenvectors [n, n], as columns.
    """
    vectors = orthonormalise(torch.linalg.eigh(matrix.float())[1].double())
    for _ in range(refinements):
        logarithm = approximate_logarithm(vectors.T @ (matrix @ vectors))
        vectors = orthonormalise(vectors @ torch.linalg.eigh(logarithm.float())[1].double())
    return (vectors * (matrix @ vectors)).sum(0), vectors


def orthonormalise(vectors: Tensor) -> Tensor:
    """Make nearly orthonormal columns [n, n] orthonormal; an error of e becomes one of e^2 (Newton's iteration)."""
    return 1.5 * vectors - 0.5 * (vectors @ (vectors.T @ vectors))


def approximate_logarithm(b: Tensor) -> Tensor:
    """Compute log(B) of a nearly diagonal B, [n, n], to first order (Daleckii & Krein 1965).

    Entry (i, j) is B_ij (log d_i - log d_j) / (d_i - d_j), with d the diagonal of B.
    """
    d = b.diagonal()
    d = d.clamp_min(d.max() * len(d) * torch.finfo(d.dtype).eps)
    logs = d.log()
    difference = logs - logs[:, None]
    quotient = torch.where(difference.abs() > 1e-4, difference / (d - d[:, None]), (d * d[:, None]).rsqrt())
    result = b * quotient
    result.diagonal().copy_(logs)
    return (result + result.T) / 2


def make_matrix(size: int, condition: float, device: str) -> Tensor:
    """Make a symmetric matrix with eigenvalues from 1 / condition to 1 in a random basis."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))[0]
    values = torch.linspace(0, 1, size, dtype=torch.float64)
    matrix = (basis * condition ** (values - 1)) @ basis.T
    return ((matrix + matrix.T) / 2).to(device)


def inverse_root(values: Tensor, vectors: Tensor) -> Tensor:
    return (vectors * values.rsqrt()) @ vectors.T


def measure_difference(decompose: Decomposition, matrix: Tensor) -> float:
    """Compute the relative difference in A^(-1/2) from a float64 decomposition."""
    expected = inverse_root(*torch.linalg.eigh(matrix))
    return float((inverse_root(*decompose(matrix)) - expected).norm() / expected.norm())


def time_decomposition(decompose: Decomposition, matrix: Tensor) -> float:
    def call() -> None:
        decompose(matrix)
        if matrix.device.type == "cuda":
            torch.cuda.synchronize()

    return time_call(call)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", type=int, default=768)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrices = {condition: make_matrix(arguments.size, condition, device) for condition in CONDITIONS}
    decompositions: dict[str, Decomposition] = {
        "float64": torch.linalg.eigh,
        "float32": partial(refined_eigh, refinements=0),
        "refined once": partial(refined_eigh, refinements=1),
        "refined twice": partial(refined_eigh, refinements=2),
    }
    contestants = {
        name: lambda number, decompose=decompose: time_decomposition(decompose, matrices[1e4])
        for name, decompose in decompositions.items()
    }
    seconds = time_alternately(contestants, arguments.rounds)
    result: dict = {"device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "size": arguments.size}
    for name, decompose in decompositions.items():
        result[name] = {
            "milliseconds": round(1000 * statistics.median(seconds[name]), 1),
            "speed_up": round(median_ratio(seconds["float64"], seconds[name]), 2),
            "differences": {f"{c:g}": measure_difference(decompose, matrix) for c, matrix in matrices.items()},
        }
    for name, value in result.items():
        print(f"{name}: {value}")
    write_result("eigh", result)


if __name__ == "__main__":
    main()
