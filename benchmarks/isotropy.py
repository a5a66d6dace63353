"""Compare the isotropy measures with other implementations of them, on one thread.

    python benchmarks/isotropy.py [--rounds 3] [--rows 1000000]

The matrix has the shape of BERT's vocabulary, V = 30,522 and d = 768. The stream, for the accumulator, consists of
random rows in chunks. The package IsoScore takes part if it is installed (pip install --no-deps IsoScore==1.0, or
2.0.1); it gets float64 too.
"""

import argparse
import os
import statistics
import time
from importlib import metadata

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

from common import median_ratio, time_alternately, time_call, write_result

import numpy as np
import torch

from isobench.common.environment import read_peak_memory_mib, reset_peak_memory
from isobench.metrics import IsotropyAccumulator, explained_variance, isoscore, partition_isotropy

V, D = 30522, 768


def partition_isotropy_by_loop(w: np.ndarray) -> float:
    """Compute I(W) as published code does: numpy's eig of W^T W, then exp(W v) for one direction at a time."""
    _, vectors = np.linalg.eig(w.T @ w)
    z = [np.exp(w @ vectors[:, i].real).sum() for i in range(vectors.shape[1])]
    return min(z) / max(z)


def explained_variance_by_svd(w: np.ndarray, vectors: bool) -> float:
    """Compute EV3 by numpy's SVD of the centred matrix, with the singular vectors (its default) or without."""
    result = np.linalg.svd(w - w.mean(0), full_matrices=False, compute_uv=vectors)
    variances = (result[1] if vectors else result) ** 2
    return variances[:3].sum() / variances.sum()


def measure_extra_memory(call) -> float:
    """Return the MiB by which a call raises the peak memory above what was in use before it."""
    call()  # the first call allocates what the libraries keep
    reset_peak_memory()
    before = read_peak_memory_mib()["resident"]
    call()
    return read_peak_memory_mib()["resident"] - before


def load_isoscore_package(w: np.ndarray):
    """Return the version of the package IsoScore and a call of it on ``w``, or None if it is not installed."""
    try:
        from IsoScore import IsoScore
    except ImportError:
        return None
    version = metadata.version("IsoScore")
    points = w.T if version.startswith("1") else w  # version 1 takes vectors as columns
    return version, lambda: IsoScore.IsoScore(points)


def measure_stream(rows: int) -> dict[str, float]:
    """Compare the accumulator with a bare Gram product of the same chunks, and measure its memory beyond a chunk."""
    chunk = torch.randn(1 << 15, D)
    rounds = -(-rows // len(chunk))
    ours, bare = [], []
    accumulator = IsotropyAccumulator(D)
    accumulator.update(chunk[:1])
    product = torch.zeros(D, D, dtype=torch.float64)
    for number in range(rounds):
        chunk[number % len(chunk)].normal_()  # so that no chunk is equal to the one before
        start = time.perf_counter()
        accumulator.update(chunk)
        middle = time.perf_counter()
        precise = chunk.double()
        product += precise.T @ precise
        ours.append(middle - start)
        bare.append(time.perf_counter() - middle)
    return {
        "rows": rounds * len(chunk),
        "speed against the bare product": sum(bare) / sum(ours),
        "MiB": measure_extra_memory(lambda: accumulator.update(chunk)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    w = 0.05 * torch.randn(V, D, generator=generator) + 0.02 * torch.randn(D, generator=generator)
    array = w.double().numpy()
    comparisons = {
        "I(W)": (lambda: partition_isotropy(w), "the loop", lambda: partition_isotropy_by_loop(array)),
        "EV": (
            lambda: explained_variance(w, (1, 2, 3)),
            "the SVD",
            lambda: explained_variance_by_svd(array, vectors=True),
        ),
        "EV again": (
            lambda: explained_variance(w, (1, 2, 3)),
            "the SVD without its vectors",
            lambda: explained_variance_by_svd(array, vectors=False),
        ),
    }
    if package := load_isoscore_package(array):
        comparisons["IsoScore"] = (lambda: isoscore(w), f"the package, {package[0]}", package[1])
    result: dict = {}
    for name, (ours, other, theirs) in comparisons.items():
        seconds = time_alternately(
            {"ours": lambda _, call=ours: time_call(call), "theirs": lambda _, call=theirs: time_call(call)},
            arguments.rounds,
        )
        times = median_ratio(seconds["theirs"], seconds["ours"])
        ours_seconds = statistics.median(seconds["ours"])
        result[name] = {
            "seconds": ours_seconds,
            f"times as fast as {other}": times,
            "MiB": measure_extra_memory(ours),
        }
        print(
            f"{name}: {ours_seconds:.2f} s, {times:.1f}x as fast as {other}, {result[name]['MiB']:.0f} MiB",
            flush=True,
        )
    result["stream"] = measure_stream(arguments.rows)
    print("stream:", {name: round(value, 3) for name, value in result["stream"].items()})
    write_result("isotropy", result)


if __name__ == "__main__":
    main()
