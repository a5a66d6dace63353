"""Functions that the benchmarks share: compose a run's config, time calls in turns, write the JSON result.

Importing this file prepares the process as isobench's commands do, so a benchmark imports it before torch.
"""

import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from isobench.common.environment import (
    MMAP_THRESHOLD,
    TRIM_THRESHOLD,
    collect_provenance,
    keep_freed_memory,
    share_processor,
)
from isobench.common.packages import conf_dir
from isobench.config.schema import Config, register_schema, to_config

os.environ["HF_HUB_OFFLINE"] = "1"
share_processor()
keep_freed_memory()

RESULTS_DIR = Path(__file__).parent / "results"


def compose_config(*overrides: str) -> Config:
    """Compose the config of a run from overrides, as the command line does, without tracking."""
    register_schema()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        return to_config(compose("config", overrides=["tracking=none", *overrides]))


def build_run(cfg: Config) -> tuple[Any, Any]:
    """Check a config and build the module and the loaders of its run."""
    from isobench.runs.identity import identify
    from isobench.runs.validate import validate_config
    from isobench.training.build import build_run_parts
    from isobench.training.train import configure_process

    validate_config(cfg)
    configure_process(cfg)
    module, loaders, *_ = build_run_parts(cfg, identify(cfg))
    return module, loaders


def train_small_run(folder: str, *settings: str) -> dict[str, Any]:
    """Train one run in a process of its own into an output folder, and return the content of its record."""
    command = [sys.executable, "-m", "isobench", *settings, f"output_dir={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    (file,) = Path(folder, "runs").glob("*/result.json")
    content: dict[str, Any] = json.loads(file.read_text())
    return content


@contextmanager
def default_allocator() -> Iterator[None]:
    """Give freed memory back as a program does that has not called ``keep_freed_memory``.

    The two thresholds are those at which the GNU C library's own arrive in a program that makes large tensors.
    """
    set_option = ctypes.CDLL(None).mallopt
    set_option(MMAP_THRESHOLD, 32 << 20)
    set_option(TRIM_THRESHOLD, 64 << 20)
    try:
        yield
    finally:
        keep_freed_memory()


def require_data() -> None:
    """End with a one-line message if ISOBENCH_DATA does not name the folder of the GLUE files."""
    if not os.environ.get("ISOBENCH_DATA"):
        raise SystemExit("this benchmark needs GLUE: set ISOBENCH_DATA to a folder with glue/<task>/<split>.parquet")


def time_call(call: Callable[[], object]) -> float:
    """Return the seconds that one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_alternately(contestants: dict[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    """Measure all contestants in each round, one after the other, so that a change of the machine's load hits all.

    Args:
        contestants: by name, a function that takes the round's number and returns seconds.
        rounds: number of rounds that count; a round 0 before them warms up and is dropped.

    Returns:
        By name, the seconds of each round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, measure in contestants.items():
            measured = measure(number)
            if number:
                seconds[name].append(measured)
    return seconds


def median_ratio(slow: list[float], fast: list[float]) -> float:
    """Return the median over rounds of slow / fast."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def write_result(name: str, result: dict) -> None:
    """Write a result with its provenance to results/<name>.json, and print the file's path."""
    RESULTS_DIR.mkdir(exist_ok=True)
    file = RESULTS_DIR / f"{name}.json"
    file.write_text(json.dumps({**result, "provenance": collect_provenance()}, indent=1) + "\n")
    print(f"-> {file}")
