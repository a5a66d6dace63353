"""What a sweep costs beside its runs: seeing that 1,000 are finished, the status of 2,000, launching one.

    python benchmarks/sweep.py

The runs are pretended: records of a real shape under the keys that the sweep will ask for. Prints seconds
beyond start-up (the same command with one run), targets 3 s and 2 s; and what launching adds a run, with the
run itself replaced by nothing (target 50 ms).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from common import save
from helpers import record_content

from isobench import __main__ as entry
from isobench.sweep.plan import compose_sweep, plan_runs

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
    """Records for a grid of 10 x seeds; returns its arguments."""
    arguments = [*GRID, f"seed=range(1,{seeds + 1})", f"output_dir={folder}"]
    with compose_sweep(arguments) as parts:
        for key, run in plan_runs(*parts).items():
            record = record_content(run.row.cfg, key=key, best=EPOCH, history=[EPOCH] * 10, cost={"seconds": 20.0})
            run.row.folder.path.mkdir(parents=True)
            run.row.folder.result_file.write_text(json.dumps(record))
    return arguments


def time_command(*command: str) -> float:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    taken = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    return taken


def time_beyond_startup(module: str, arguments: list[str], *flags: str) -> float:
    """Median over five rounds of the whole command's seconds less the same command's with one run of its grid."""
    one = ["calibration=none", "optimization.lr=1e-5", "tracking=none", "seed=1", arguments[-1]]
    return statistics.median(
        time_command(module, *arguments, *flags) - time_command(module, *one, *flags) for _ in range(5)
    )


def time_launching(folder: str, runs: int = 100) -> float:
    """Seconds that Hydra's basic launcher adds a run: 100 runs that do nothing, less the planning of them."""
    arguments = ["-m", f"seed=range(1,{runs + 1})", "tracking=none", f"output_dir={folder}/launch"]

    def sweep(*more: str) -> float:
        sys.argv = ["isobench", *arguments, *more]
        start = time.perf_counter()
        nothing = patch("isobench.sweep.launchers.execute_run", lambda cfg, position: (0, None))
        with nothing, Path(os.devnull).open("w") as null, redirect_stdout(null), redirect_stderr(null):
            entry.main()
        return time.perf_counter() - start

    return statistics.median(sweep() - sweep("dry_run=true") for _ in range(3)) / runs


def main() -> None:
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        result["1,000 finished runs, the sweep again"] = time_beyond_startup(
            "isobench", write_fake_runs(f"{folder}/a", 100), "-m"
        )
        result["status of 2,000 runs"] = time_beyond_startup("isobench.status", write_fake_runs(f"{folder}/b", 200))
        result["launching, a run"] = time_launching(folder)
    for name, value in result.items():
        print(f"{name}: {value:.3f} s")
    save("sweep", result)


if __name__ == "__main__":
    main()
