"""Measure what a sweep costs beside its runs.

    python benchmarks/sweep.py

Prints the seconds that a sweep takes to see that its 1,000 runs are finished (target: 3 s) and that the status of
2,000 runs takes (target: 2 s), both less the start-up, which is the same command with one run. The finished runs are
fake records of a real record's shape, under the keys that the sweep looks for. Also prints what launching adds to
each run, with the run itself replaced by nothing (target: 50 ms).
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest.mock import patch

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from common import write_result

from helpers import record_content

from isobench import __main__ as entry
from isobench.runs.record import format_record
from isobench.sweep.planning import compose_sweep, plan_runs

EPOCH = {
    "epoch": 1,
    "step": 32,
    "validation": {"accuracy": 0.7, "constant_predictor": False},
    "isotropy": {
        f"{part}/{name}": 0.5 for part in ("embedding", "head") for name in ("ev1", "ev2", "ev3", "i1", "i2")
    },
    "score": 0.7,
    "selection": 0.7,
}
GRID = ["calibration=none,isobn_paper", "optimization.lr=1e-5,2e-5,5e-5,1e-4,2e-4", "tracking=none"]


def write_fake_runs(folder: str, seeds: int) -> list[str]:
    """Write records of finished runs for a grid of 10 x seeds, and return the grid's command-line arguments."""
    arguments = [*GRID, f"seed=range(1,{seeds + 1})", f"output_dir={folder}"]
    with compose_sweep(arguments) as parts:
        for run in plan_runs(*parts):
            history = [EPOCH | {"epoch": number} for number in range(1, 11)]
            record = record_content(run.cfg, key=run.folder.key, best=EPOCH, history=history, cost={"seconds": 20.0})
            run.folder.path.mkdir(parents=True)
            run.folder.result_file.write_bytes(format_record(record))
    return arguments


def time_command(*command: str) -> float:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    return seconds


def time_beyond_startup(words: list[str], arguments: list[str], *flags: str) -> float:
    """Return the median over five rounds of a command's seconds less those of the same command with one run."""
    one = ["calibration=none", "optimization.lr=1e-5", "tracking=none", "seed=1", arguments[-1]]
    return statistics.median(
        time_command(*words, *arguments, *flags) - time_command(*words, *one, *flags) for _ in range(5)
    )


def time_launching(folder: str, runs: int = 100) -> float:
    """Return the seconds that the sequential launcher adds to a run: runs that do nothing, less their planning."""
    settings = ["tracking=none", f"output_dir={folder}/launch", "hydra/launcher=sequential"]
    arguments = ["-m", f"seed=range(1,{runs + 1})", *settings]

    def sweep(*more: str) -> float:
        sys.argv = ["isobench", *arguments, *more]
        start = time.perf_counter()
        nothing = patch("isobench.sweep.worker.execute_run", lambda run, label, since: 0)
        ended = suppress(SystemExit)  # its code says that the runs have no records
        with nothing, ended, Path(os.devnull).open("w") as null, redirect_stdout(null), redirect_stderr(null):
            entry.main()
        return time.perf_counter() - start

    return statistics.median(sweep() - sweep("dry_run=true") for _ in range(3)) / runs


def main() -> None:
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        result["1,000 finished runs, the sweep again"] = time_beyond_startup(
            ["isobench"], write_fake_runs(f"{folder}/a", 100), "-m"
        )
        result["status of 2,000 runs"] = time_beyond_startup(
            ["isobench", "status"], write_fake_runs(f"{folder}/b", 200)
        )
        result["launching, a run"] = time_launching(folder)
    for name, value in result.items():
        print(f"{name}: {value:.3f} s")
    write_result("sweep", result)


if __name__ == "__main__":
    main()
