"""Measure what checkpoints cost at the default interval.

    python benchmarks/checkpoint.py

Trains each packaged encoder for a few steps with a checkpoint after each, and prints the seconds and the size of one
checkpoint, and its share of the training time at the default of `checkpoint.minutes` (target: under 3%).
"""

import json
import tempfile
from pathlib import Path
from unittest.mock import patch

from common import compose_config, write_result

from isobench.training.execute import execute_run

STEPS = 6


def main() -> None:
    result = {}
    for encoder in ("minilm", "distilbert-quire"):
        with tempfile.TemporaryDirectory() as folder:
            cfg = compose_config(
                f"encoder={encoder}", f"output_dir={folder}", f"task.train_samples={16 * (STEPS + 1)}",
                "task.dev_samples=16", "optimization.epochs=1", "optimization.batch_size=16", "checkpoint.steps=1",
            )  # fmt: skip
            with patch("isobench.training.checkpoint.CheckpointFiles.remove_all", lambda files: None):
                execute_run(cfg)
            (file,) = Path(folder).glob("runs/*/result.json")
            seconds = json.loads(file.read_text())["cost"]["checkpoint_seconds"] / STEPS
            size = max(file.stat().st_size for file in Path(folder).glob("runs/*/checkpoints/*")) / 2**20
        share = seconds / (60 * float(compose_config().checkpoint.minutes or 0))
        result[encoder] = {"seconds": seconds, "MiB": size, "share": share}
        print(f"{encoder}: {size:.0f} MiB in {seconds:.2f} s, {100 * share:.2f}% of training at the default interval")
    write_result("checkpoint", result)


if __name__ == "__main__":
    main()
