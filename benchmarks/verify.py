"""Measure how long isobench verify takes at level 1 for hundreds of runs.

    python benchmarks/verify.py [--runs 300] [--examples 1000] [--epochs 10]

Makes an output folder of runs that agree with themselves: one small run is trained, and each further one has its
record with another seed, predictions of its own, and the scores that follow from them. Half of the runs are plain
fine-tuning, half IsoBN. The whole folder is verified in this process. Prints the processor seconds and the seconds
for the whole folder (target for 300 runs: 60 processor seconds), and asserts that everything holds.
"""

import argparse
import copy
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from common import compose_config, train_small_run, write_result

import numpy as np

from isobench.config.schema import Config
from isobench.metrics.task import evaluate_predictions, is_constant
from isobench.runs.folder import PREDICTIONS_FILE, RunFolder, write_predictions
from isobench.runs.identity import identify, resolve_seeds
from isobench.runs.record import RunRecord
from isobench.verification.folder import UNCHECKED
from isobench.verification.reproduction import Options
from isobench.verification.verify import verify

SMALL = ["task.train_samples=32", "tracking=none", "trainer.threads=1", "optimization.patience=null"]


def write_run(cfg: Config, real: dict[str, Any], labels: np.ndarray) -> None:
    """Write a run that has another run's record, but the key, seeds, predictions and scores of its own."""
    identity, random_numbers = identify(cfg), np.random.default_rng(cfg.seed)
    folder, content = RunFolder(cfg.output_dir, identity.key), copy.deepcopy(real)
    folder.path.mkdir(parents=True)
    logits = random_numbers.normal(size=(len(labels), 2)).astype(np.float32)
    predictions = logits.argmax(1)
    metrics: dict[str, Any] = evaluate_predictions(list(cfg.task.metrics), labels, predictions)
    score = metrics[cfg.task.primary]
    for epoch in content["history"]:  # the first of equals is reported
        epoch |= {"score": score, "selection": score}
        epoch["validation"] = metrics | {"constant_predictor": is_constant(predictions)}
    outputs = {"validation": {"label": labels, "prediction": predictions, "logits": logits}}
    content |= {
        "key": identity.key,
        "seeds": resolve_seeds(cfg),
        "best": content["history"][0],
        "config": asdict(cfg),
        "predictions": write_predictions(folder.path / PREDICTIONS_FILE, outputs).model_dump(),
        "data": {"fingerprint": identity.data},
    }
    content["scale"]["differs"] = [text for text in content["scale"]["differs"] if "dev example" not in text]
    folder.write_record(RunRecord.model_validate(content))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    labels = np.random.default_rng(0).integers(0, 2, options.examples)
    with tempfile.TemporaryDirectory() as folder:
        outputs, small = Path(folder, "outputs"), [*SMALL, f"optimization.epochs={options.epochs}"]
        real = train_small_run(f"{folder}/real", *small, "task.dev_samples=32", "report=false")
        settings = [*small, f"output_dir={outputs}"]
        bases = [compose_config(*settings, f"calibration={name}") for name in ("none", "isobn_paper")]
        seeds = range(1, options.runs // len(bases) + 1)
        runs = [replace(base, seed=seed) for base in bases for seed in seeds]
        for cfg in runs:
            write_run(cfg, real, labels)
        start, processor_start = time.perf_counter(), time.process_time()
        outcomes = verify(outputs, Options())
        seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor_start
    assert not outcomes.has_failed
    assert not list(outcomes.list_entries(UNCHECKED))
    print(f"{len(runs)} runs at level 1: {processor_seconds:.1f} processor seconds, {seconds:.1f} s")
    write_result("verify", {"runs": len(runs), "processor_seconds": processor_seconds, "seconds": seconds})


if __name__ == "__main__":
    main()
