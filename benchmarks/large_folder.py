"""Measure how status, report, a sweep and prune cope with an output folder of thousands of finished runs.

    python benchmarks/large_folder.py [--seeds 9] [--rounds 3]

The folder holds the 588 runs of glue_isobn at the paper's scale, once for each seed: 5,292 runs with nine seeds, and
the plan of the sweep that made them. Each record is a copy of one real record of ten epochs, with the key, config,
seed and scores of its run. All runs share one file of predictions of 5,000 examples, whose sum the report and the
sweep compare. Each command runs as a process. Prints its seconds beyond those of the same command in a folder of one
run (targets for 5,000 runs: 5 s, prune 10 s), and its peak memory (target: 1 GiB).
"""

import argparse
import copy
import dataclasses
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import train_small_run, write_result

import numpy as np

from isobench.config.schema import Config
from isobench.runs.folder import PREDICTIONS_FILE, write_predictions
from isobench.runs.identity import Identity, identify, resolve_seeds
from isobench.runs.plan import Plan, write_plan
from isobench.runs.record import RECORD_FORMAT, format_record
from isobench.sweep.planning import compose_sweep, plan_runs

SWEEP = ["+experiment=glue_isobn", "scale=paper", "data.root=null", "tracking=none"]
ONE_RUN = [
    "task=cola", "encoder=bert-base-cased", "calibration=none", "optimization.lr=2e-5", "optimization.batch_size=16",
]  # fmt: skip
REAL_RUN = [
    "task.train_samples=32", "task.dev_samples=32", "optimization.epochs=10", "optimization.patience=null",
    "tracking=none", "trainer.threads=1",
]  # fmt: skip
EXAMPLES = 5000  # the dev sets of GLUE have 277 to 40,430
MIB = 2**20


def make_real_record(folder: str) -> dict[str, Any]:
    """Train one small run, and return the content of its record, with larger predictions in place of its own."""
    content = train_small_run(folder, *REAL_RUN)
    assert content["format"] == RECORD_FORMAT
    random_numbers = np.random.default_rng(0)
    outputs = {
        "label": random_numbers.integers(0, 2, EXAMPLES),
        "prediction": random_numbers.integers(0, 2, EXAMPLES),
        "logits": random_numbers.normal(size=(EXAMPLES, 2)).astype(np.float32),
    }
    predictions = write_predictions(Path(folder, PREDICTIONS_FILE), {"validation": outputs})
    return content | {"predictions": predictions.model_dump()}


def write_finished_runs(arguments: list[str], real: dict[str, Any], predictions: Path) -> int:
    """Write config and record of every run of a sweep, copies of a real one's, and return how many runs it has."""
    with compose_sweep(arguments) as parts:
        runs = plan_runs(*parts)
    plan = Plan(runs[0].cfg.experiment.name, ["made up"], [(run.cfg, identify(run.cfg)) for run in runs])
    write_plan(runs[0].cfg.output_dir, plan)
    for run in runs:
        cfg, folder = run.cfg, run.folder
        folder.path.mkdir(parents=True)
        config = dataclasses.asdict(cfg)
        record = adapt_record(real, cfg, identify(cfg)) | {"config": config}
        folder.result_file.write_bytes(format_record(record))
        os.link(predictions, folder.path / PREDICTIONS_FILE)
    return len(runs)


def adapt_record(real: dict[str, Any], cfg: Config, identity: Identity) -> dict[str, Any]:
    """Copy the real record for another run: its key, seeds and fingerprints, and scores of its own."""
    score = random.Random(identity.key).uniform(0.7, 0.9)
    metrics = {**dict.fromkeys(cfg.task.metrics, score), "constant_predictor": False}
    record = copy.deepcopy(real)
    record["best"] = copy.deepcopy(record["history"][0])  # the first epoch of those with the best score
    for epoch in (record["best"], *record["history"]):
        del epoch["validation"]
        epoch |= dict.fromkeys(cfg.task.dev_splits, metrics) | {"score": score, "selection": score}
    return record | {
        "key": identity.key,
        "seeds": resolve_seeds(cfg),
        "scale": {"name": cfg.scale, "differs": []},
        "data": {"fingerprint": identity.data},
        "encoder": {"fingerprint": identity.encoder},
    }


def measure_command(command: list[str]) -> tuple[float, float]:
    """Run a command and return its seconds and its peak memory in MiB."""
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", *command], stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        output.seek(0)
        assert status == 0, output.read().decode()
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / MIB


def list_commands(folder: str, sweep: list[str]) -> dict[str, list[str]]:
    """List the measured commands, by name."""
    here = f"output_dir={folder}"
    return {
        "status": ["isobench", "status", here],
        "report": ["isobench", "report", *sweep, here],
        "prune": ["isobench", "prune", here],
        "sweep": ["isobench", "-m", *sweep, here],
    }


def measure_folders(folders: dict[str, list[str]], rounds: int) -> dict[str, dict[str, float]]:
    """Measure every command in two folders in turns; the difference is what the larger one's runs take.

    Args:
        folders: the folder of one run, then the large one, each with the arguments of its sweep.
        rounds: how often each command runs; medians are returned.
    """
    one, large = (list_commands(folder, sweep) for folder, sweep in folders.items())
    results = {}
    for name in one:
        seconds, memory = [], []
        for _ in range(rounds):
            (start, _), (whole, peak) = measure_command(one[name]), measure_command(large[name])
            seconds.append(whole - start)
            memory.append(peak)
        results[name] = {"seconds": statistics.median(seconds), "peak_memory_mib": max(memory)}
        print(f"{name}: {results[name]['seconds']:.2f} s, {results[name]['peak_memory_mib']:.0f} MiB", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=9, help="seeds of the large folder, 588 runs each")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        real = make_real_record(f"{folder}/real")
        folders = {
            f"{folder}/one": [*SWEEP, *ONE_RUN, "seed=1"],
            f"{folder}/large": [*SWEEP, f"seed=range(1,{options.seeds + 1})"],
        }
        predictions = Path(folder, "real", PREDICTIONS_FILE)
        counts = [
            write_finished_runs([*sweep, f"output_dir={path}"], real, predictions) for path, sweep in folders.items()
        ]
        print(f"{counts[1]} runs", flush=True)
        write_result("large_folder", {"runs": counts[1], **measure_folders(folders, options.rounds)})


if __name__ == "__main__":
    main()
