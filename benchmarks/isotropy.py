"""The isotropy measures against what others compute them with, on one thread.

    python benchmarks/isotropy.py [--rounds 3] [--rows 1000000]

V = 30,522 and d = 768, as BERT's vocabulary; the stream is of random rows made as it goes, a chunk at a time.
The package IsoScore is measured if it is installed (pip install --no-deps IsoScore).
"""

import argparse
import os
import resource
import statistics
import time

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
import torch
from common import alternate, ratio, save, seconds_of

from isobench.metrics import IsotropyAccumulator, explained_variance, isoscore, partition_isotropy

V, D = 30522, 768


def by_the_loop(w: np.ndarray) -> float:
    """I(W) as usually published: numpy's eig of W^T W, then exp(W v) one direction at a time."""
    _, vectors = np.linalg.eig(w.T @ w)
    z = [np.exp(w @ vectors[:, i].real).sum() for i in range(vectors.shape[1])]
    return min(z) / max(z)


def by_svd(w: np.ndarray) -> float:
    """EV_1..3 by the SVD of the centred matrix."""
    singular = np.linalg.svd(w - w.mean(0), compute_uv=False) ** 2
    return singular[:3].sum() / singular.sum()


def by_package(w: np.ndarray):
    """PyPI's IsoScore, or None."""
    try:
        from IsoScore import IsoScore
    except ImportError:
        return None
    return lambda: IsoScore.IsoScore(w.T)


def stream(rows: int) -> dict[str, float]:
    """The accumulator over so many rows against the bare Gram product of the same chunks; memory beyond the start."""
    chunk = torch.randn(1 << 15, D)
    rounds = -(-rows // len(chunk))
    ours, bare = [], []
    accumulator = IsotropyAccumulator(D)
    accumulator.update(chunk[:1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    second = torch.zeros(D, D, dtype=torch.float64)
    for number in range(rounds):
        chunk[number % len(chunk)].normal_()  # never quite the same
        start = time.perf_counter()
        accumulator.update(chunk)
        middle = time.perf_counter()
        precise = chunk.double()
        second += precise.T @ precise
        ours.append(middle - start)
        bare.append(time.perf_counter() - middle)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"rows": rounds * len(chunk), "speed against the bare product": sum(bare) / sum(ours), "MiB": grown}


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
        "I(W)": (lambda: partition_isotropy(w), "the loop", lambda: by_the_loop(array)),
        "EV": (lambda: explained_variance(w, (1, 2, 3)), "the SVD", lambda: by_svd(array)),
    }
    if package := by_package(w.numpy()):
        comparisons["IsoScore"] = (lambda: isoscore(w), "the package", package)
    result: dict = {}
    for name, (ours, other, theirs) in comparisons.items():
        seconds = alternate(
            {"ours": lambda _, call=ours: seconds_of(call), "theirs": lambda _, call=theirs: seconds_of(call)},
            arguments.rounds,
        )
        times = ratio(seconds["theirs"], seconds["ours"])
        taken = statistics.median(seconds["ours"])
        result[name] = {"seconds": taken, f"times as fast as {other}": times}
        print(f"{name}: {taken:.2f} s, {times:.1f}x as fast as {other}", flush=True)
    result["stream"] = stream(arguments.rows)
    print("stream:", {name: round(value, 3) for name, value in result["stream"].items()})
    save("isotropy", result)


if __name__ == "__main__":
    main()
