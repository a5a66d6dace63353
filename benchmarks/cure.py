"""Compare the speed of fitting all-but-the-top on a memory-mapped file with NumPy's X.T @ X of the same file.

    python benchmarks/cure.py [--rows 200000] [--rounds 5]

NumPy has one thread. The fit has one for products and one for the data's sha256, so on a busy machine it waits for
the second; its main thread's processor time is printed beside the seconds.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

from common import compose_config, median_ratio, time_alternately, time_call, write_result

import numpy as np

from isobench.frozen.cure import fit_cure
from isobench.frozen.matrix import read_vectors

DIM = 384


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    calibration = compose_config("calibration=all_but_the_top").calibration
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.npy")
        rows = np.lib.format.open_memmap(file, "w+", np.float32, (arguments.rows, DIM))
        for start in range(0, len(rows), 10_000):
            part = rows[start : start + 10_000]
            part[:] = np.random.default_rng(start).standard_normal(part.shape, np.float32) + 0.3
        processor: list[float] = []

        def fit(_: int) -> float:
            start = time.thread_time()
            seconds = time_call(lambda: fit_cure(calibration, read_vectors(file)[0]))
            processor.append(time.thread_time() - start)
            return seconds

        def multiply(_: int) -> float:
            mapped = np.load(file, mmap_mode="r")
            return time_call(lambda: mapped.T @ mapped)

        seconds = time_alternately({"numpy": multiply, "fit": fit}, arguments.rounds)
    ratio = median_ratio(seconds["numpy"], seconds["fit"])
    best = min(seconds["numpy"]) / min(seconds["fit"])
    print(f"fit of {arguments.rows:,} x {DIM}: {ratio:.2f}x as fast as X.T @ X (medians), {best:.2f}x (best of each)")
    alone = min(seconds["numpy"]) / min(processor)
    print(
        f"by the main thread's processor time {alone:.2f}x", {name: min(values) for name, values in seconds.items()}
    )
    write_result(
        "cure", {"seconds": seconds, "ratio": ratio, "ratio of the best": best, "ratio of the main thread": alone}
    )


if __name__ == "__main__":
    main()
