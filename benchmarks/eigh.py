"""Compare a refined float32 eigendecomposition with a float64 one, on a GPU if there is one.

    python benchmarks/eigh.py [--rounds 10] [--size 768]

Methods use the refined one on GPUs whose float64 is slow (isobench/common/refined_eigh.py). It pays where the ratio is
above 1. Beside the times stands the difference in A^(-1/2) for a matrix of condition number 1e4.
"""

import argparse
import statistics

import torch
from common import median_ratio, time_alternately, time_call, write_result

from isobench.common.refined_eigh import is_float64_slow, refined_eigh


def make_matrix(size: int, device: str) -> torch.Tensor:
    """A symmetric matrix with eigenvalues from 1e-4 to 1 in a random basis."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))[0]
    return ((basis * torch.logspace(-4, 0, size, dtype=torch.float64)) @ basis.T).to(device)


def inverse_root(values: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    return (vectors * values.rsqrt()) @ vectors.T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", type=int, default=768)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrix = make_matrix(arguments.size, device)

    def measure(decompose):
        def call() -> None:
            decompose(matrix)
            if device == "cuda":
                torch.cuda.synchronize()

        return lambda number: time_call(call)

    contestants = {"float64": measure(torch.linalg.eigh), "refined float32": measure(refined_eigh)}
    seconds = time_alternately(contestants, arguments.rounds)
    expected = inverse_root(*torch.linalg.eigh(matrix))
    difference = float((inverse_root(*refined_eigh(matrix)) - expected).norm() / expected.norm())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    result = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "float64_is_slow": is_float64_slow(matrix.device),
        "size": arguments.size,
        "milliseconds": {name: round(1000 * value, 1) for name, value in medians.items()},
        "speed_up": round(median_ratio(seconds["float64"], seconds["refined float32"]), 2),
        "difference": difference,
    }
    for name, value in result.items():
        print(f"{name}: {value}")
    write_result("eigh", result)


if __name__ == "__main__":
    main()
