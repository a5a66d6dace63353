"""Measure how long a user waits before anything happens.

    python benchmarks/startup.py

Prints the seconds of ``--help`` and of a config error (target: under 2 each), what `import isobench.calibration` and
`import isobench.metrics` add to `import torch` (target: under 0.2 each), and how much faster a run's tokens come from
the cache than from the tokenizer (target: under a second).
"""

import statistics
import subprocess
import sys
import tempfile
import time

from common import compose_config, time_alternately, write_result

from isobench.kinds.classification.build import make_loaders
from isobench.models import encoders, tokenization
from isobench.runs.identity import identify

TIME_IMPORT = """
import time
import torch
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""


def time_command(*arguments: str) -> float:
    """Return the seconds that ``python -m isobench`` takes with these arguments."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "isobench", *arguments], capture_output=True, check=False)
    return time.perf_counter() - start


def time_import(module: str) -> float:
    """Return the seconds that importing a module adds to ``import torch``, in a fresh process."""
    command = [sys.executable, "-c", TIME_IMPORT.format(module=module)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def time_tokens(rounds: int) -> dict[str, list[float]]:
    """Return the seconds of making a run's loaders with an empty cache, and again with the tokens in it."""
    seconds: dict[str, list[float]] = {"tokenise": [], "tokens from the cache": []}
    with tempfile.TemporaryDirectory() as cache:
        for number in range(rounds + 1):
            cfg = compose_config(f"data.cache={cache}/{number}")
            identity, tokenizer = identify(cfg), tokenization.load_tokenizer(cfg.encoder, None)
            loaded = encoders.load_encoder(cfg.encoder, None, seed=1)
            for times in seconds.values():
                start = time.perf_counter()
                make_loaders(cfg, identity, tokenizer, loaded)
                times.append(time.perf_counter() - start)
    return {name: times[1:] for name, times in seconds.items()}  # the first round warms up


def main() -> None:
    contestants = {
        "--help": lambda _: time_command("--help"),
        "config error": lambda _: time_command("task=rtee"),
        "import isobench.calibration": lambda _: time_import("isobench.calibration"),
        "import isobench.metrics": lambda _: time_import("isobench.metrics"),
    }
    seconds = time_alternately(contestants, rounds=5) | time_tokens(rounds=5)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in medians.items():
        print(f"{name}: {median:.3f} s")
    print(f"the cache is {medians['tokenise'] / medians['tokens from the cache']:.0f}x faster than tokenising")
    write_result("startup", medians)


if __name__ == "__main__":
    main()
