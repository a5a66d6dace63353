"""What the benchmarks share: the run to measure, alternating rounds, the JSON record."""

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from isobench.common.provenance import collect_provenance
from isobench.common.resources import conf_dir
from isobench.config.schema import Config, register_schema, to_config

RESULTS_DIR = Path(__file__).parent / "results"


def compose_config(*overrides: str) -> Config:
    """A run's config, as the command line would give it, without tracking."""
    register_schema()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        return to_config(compose("config", overrides=["tracking=none", *overrides]))


def require_data() -> None:
    """End with one line if the GLUE files are not there."""
    if not os.environ.get("ISOBENCH_DATA"):
        raise SystemExit("set ISOBENCH_DATA to a folder with glue/<task>/<split>.parquet")


def time_call(call: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_training_step(module: Any, batch: dict, *optimizers: Any) -> float:
    """Seconds of a training step: forward, backward and the updates of those optimisers that there are."""
    start = time.perf_counter()
    module.training_step(batch, 0).backward()
    for optimizer in optimizers:
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
    return time.perf_counter() - start


def time_alternately(contestants: dict[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every contestant in every round, taking turns; round 0 warms up and is dropped."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, measure in contestants.items():
            taken = measure(number)
            if number:
                seconds[name].append(taken)
    return seconds


def median_ratio(slow: list[float], fast: list[float]) -> float:
    """Median over rounds of slow / fast."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def write_result(name: str, result: dict) -> None:
    """Write the record and say where."""
    RESULTS_DIR.mkdir(exist_ok=True)
    file = RESULTS_DIR / f"{name}.json"
    file.write_text(json.dumps({**result, "provenance": collect_provenance()}, indent=1) + "\n")
    print(f"-> {file}")
