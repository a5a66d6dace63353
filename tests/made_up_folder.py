"""An output folder of runs that nobody carried out: their records are made up, with scores that differ by seed."""

import random
from dataclasses import replace
from pathlib import Path

from helpers import make_config, make_record

from isobench.runs.folder import RunFolder


def write_folder(
    folder: Path, methods=("none", "isobn_paper"), seeds=(1, 2, 3), epochs=2, parts=None, first_key=1, **changed
):
    """Write a run for each method and seed, and return their records.

    ``parts``: (method, seed) -> parts of its record that are replaced; ``changed``: settings of the experiment.
    """
    rng = random.Random(0)
    records = []
    for method in methods:
        for seed in seeds:
            overrides = [
                "task=sst2",
                "tracking=none",
                f"calibration={method}",
                f"seed={seed}",
                f"output_dir={folder}",
            ]
            cfg = make_config(*overrides)
            cfg.experiment = replace(cfg.experiment, **changed)
            history = [make_epoch(cfg.task.dev_splits, number, rng) for number in range(1, epochs + 1)]
            best = max(history, key=lambda epoch: epoch["score"]) if history else None
            key = f"{len(records) + first_key:02x}" * 32
            content = {"key": key, "history": history, "best": best, **(parts or {}).get((method, seed), {})}
            records.append(make_record(cfg, **content))
            RunFolder(str(folder), key).write_record(records[-1])
    return records


def make_epoch(splits, number, rng):
    score = rng.uniform(0.6, 0.9)
    metrics = {split: {"accuracy": score, "constant_predictor": False} for split in splits}
    return {
        "epoch": number, "step": 10 * number, "score": score, "selection": score,
        "isotropy": {"embedding/ev1": rng.random(), "embedding/isoscore": rng.random()}, **metrics,
    }  # fmt: skip
