"""Measure by how much a run's score and logits change on another processor: what level 3 of isobench verify allows.

    python benchmarks/tolerance.py [--seeds 1 2 3] [--examples 512] [--epochs 2] [--tasks rotten_tomatoes]

Trains the same runs (plain fine-tuning and both forms of IsoBN, each seed) several times: twice with one thread, once
with two threads, and once with each of two older instruction sets, which the switches of torch, oneDNN and MKL choose
(ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA, MKL_ENABLE_INSTRUCTIONS). Each time is a command of its own with a cache of
its own. Prints for each variant how many runs have the predictions of the first one to the bit, the largest
difference of score (a fraction), and the largest root mean square difference of logits. The largest of all variants
is what isobench/verification/reproduction.py must allow. The repetition with one thread must be equal to the bit.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import write_result

import numpy as np
import pyarrow.parquet

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
SSE4 = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
VARIANTS: dict[str, tuple[int, dict[str, str]]] = {  # name -> threads, environment variables
    "again": (1, {}),
    "two threads": (2, {}),
    "AVX2": (1, AVX2),
    "AVX2, two threads": (2, AVX2),
    "SSE4": (1, SSE4),
}


def train_runs(folder: Path, threads: int, variables: dict[str, str], options: argparse.Namespace) -> Path:
    """Train all runs into a new folder, and return it."""
    settings = [
        f"task={','.join(options.tasks)}", f"seed={','.join(map(str, options.seeds))}", "report=false",
        f"task.train_samples={options.examples}", f"optimization.epochs={options.epochs}", "tracking=none",
        "hydra/launcher=sequential", f"trainer.threads={threads}", f"output_dir={folder}/outputs",
        f"data.cache={folder}/cache",
    ]  # fmt: skip
    command = [sys.executable, "-m", "isobench", "+experiment=glue_isobn", "-m", *settings]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "outputs" / "runs"


def compare_runs(reference: Path, other: Path) -> dict[str, Any]:
    """Compare the runs of two folders: how many are equal to the bit, and the largest differences."""
    equal, scores, logits = [], [], []
    for file in sorted(reference.glob("*/result.json")):
        twin = other / file.parent.name / "result.json"
        first, second = (json.loads(path.read_text()) for path in (file, twin))
        values = [np.array(read_logits(path.parent)) for path in (file, twin)]
        scores.append(abs(first["best"]["score"] - second["best"]["score"]))
        logits.append(float(np.sqrt(np.mean((values[0] - values[1]) ** 2))))
        equal.append(bool((values[0] == values[1]).all()) and first["history"] == second["history"])
    assert scores
    return {
        "runs": len(scores), "equal": sum(equal), "largest_score": max(scores), "largest_logits": max(logits),
        "scores": scores, "logits": logits,
    }  # fmt: skip


def read_logits(folder: Path) -> list[list[float]]:
    """Read the logits of a run's predictions, [N, c]."""
    table = pyarrow.parquet.read_table(folder / "predictions.parquet", columns=["logits"])
    values: list[list[float]] = table["logits"].to_pylist()
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--examples", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--tasks", nargs="+", default=["rotten_tomatoes"])
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        reference = train_runs(Path(folder, "reference"), 1, {}, options)
        for name, (threads, variables) in VARIANTS.items():
            runs = train_runs(Path(folder, re.sub(r"\W", "_", name)), threads, variables, options)
            results[name] = found = compare_runs(reference, runs)
            print(
                f"{name}: {found['equal']} of {found['runs']} runs equal to the bit; largest difference of score "
                f"{found['largest_score']:.4f}, of logits {found['largest_logits']:.2g}",
                flush=True,
            )
        assert results["again"]["equal"] == results["again"]["runs"]
    write_result("tolerance", {"tasks": options.tasks, "examples": options.examples, "variants": results})


if __name__ == "__main__":
    main()
