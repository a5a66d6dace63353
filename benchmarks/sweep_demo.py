"""Time the demo's sweep: all cores, one run after another, and a peer's loop over transformers.Trainer.

    python benchmarks/sweep_demo.py [--rounds 3] [--seeds 1 2 3 4 5] [--epochs 2] [--examples 512]
    python benchmarks/sweep_demo.py --rounds 1 --seeds 1 --epochs 1 --examples 128       (a few minutes)

In each round it carries out the runs of ``make demo`` in three ways, one after the other, each as a command of its
own with a fresh output folder and a fresh cache, everything counted from the start of Python to its end:

- auto: ``hydra/launcher=auto``, one process of one thread for each core;
- sequential: ``hydra/launcher=sequential`` with as many threads as there are cores (what was the default before);
- trainer: ``benchmarks/trainer_loop.py``, with torch's own number of threads.

Prints the seconds and the processor seconds of each, and the medians over rounds of auto / sequential (target: at
most 0.65) and trainer / auto (target: at least 2.2). Checks that every run has finished, and with how many threads.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import median_ratio, write_result

HERE = Path(__file__).resolve().parent
METHODS = 3


def run_command(arguments: list[str]) -> tuple[float, float, str]:
    """Run a Python command; return its seconds, its processor seconds with those of its children, and its output.

    OMP_NUM_THREADS is unset: each contestant chooses its own threads, as it does for a user.
    """
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=variables)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def time_sweep(launcher: str, threads: int, options: argparse.Namespace) -> dict:
    """Time the sweep with a launcher, and check its records: all finished, each with this number of threads."""
    settings = [f"optimization.epochs={options.epochs}", f"task.train_samples={options.examples}", "tracking=none"]
    seeds = ",".join(map(str, options.seeds))
    chosen = [f"hydra/launcher={launcher}", *([f"trainer.threads={threads}"] if launcher == "sequential" else [])]
    with tempfile.TemporaryDirectory() as folder:
        places = [f"output_dir={folder}/outputs", f"data.cache={folder}/cache"]
        command = ["-m", "isobench", "+experiment=glue_isobn", "-m", f"seed={seeds}", *settings, *chosen, *places]
        seconds, processor_seconds, _ = run_command(command)
        records = [json.loads(file.read_text()) for file in Path(folder).glob("outputs/runs/*/result.json")]
    assert len(records) == METHODS * len(options.seeds)
    assert all(record["status"] == "finished" for record in records)
    assert {record["provenance"]["threads"] for record in records} == {threads}
    score = statistics.mean(record["history"][-1]["score"] for record in records)
    return {"seconds": seconds, "processor seconds": processor_seconds, "mean accuracy after the last epoch": score}


def time_trainer(options: argparse.Namespace) -> dict:
    """Time the peer's loop."""
    numbers = ["--seeds", *map(str, options.seeds), "--epochs", str(options.epochs)]
    seconds, processor_seconds, output = run_command(
        [str(HERE / "trainer_loop.py"), *numbers, "--examples", str(options.examples)]
    )
    scores = json.loads(output.splitlines()[-1])
    assert len(scores) == METHODS * len(options.seeds)
    score = statistics.mean(scores)
    return {"seconds": seconds, "processor seconds": processor_seconds, "mean accuracy after the last epoch": score}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--examples", type=int, default=512, help="training examples")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    contestants = {
        "auto": lambda: time_sweep("auto", 1, options),
        "sequential": lambda: time_sweep("sequential", cores, options),
        "trainer": lambda: time_trainer(options),
    }
    rounds: dict[str, list[dict]] = {name: [] for name in contestants}
    for number in range(options.rounds):
        for name, measure in contestants.items():
            measured = measure()
            rounds[name].append(measured)
            print(
                f"round {number + 1}, {name}: " + ", ".join(f"{k} {v:.3g}" for k, v in measured.items()), flush=True
            )
    seconds = {name: [measured["seconds"] for measured in each] for name, each in rounds.items()}
    result = {
        "runs": METHODS * len(options.seeds), "epochs": options.epochs, "examples": options.examples, "cores": cores,
        "auto / sequential": median_ratio(seconds["auto"], seconds["sequential"]),
        "trainer / auto": median_ratio(seconds["trainer"], seconds["auto"]),
        "rounds": rounds,
    }  # fmt: skip
    print(f"auto / sequential: {result['auto / sequential']:.2f} (target: at most 0.65)")
    print(f"trainer / auto: {result['trainer / auto']:.2f} (target: at least 2.2)")
    write_result("sweep_demo", result)


if __name__ == "__main__":
    main()
