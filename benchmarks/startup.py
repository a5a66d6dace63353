"""How long a user waits: --help, a config error, tokenising once and again.

    python benchmarks/startup.py

Prints seconds for --help and for a config error (target under 2 each), and how many times faster a run's
tokens come from the cache than from the tokenizer (target: under a second).
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"

from common import compose_config, write_result

from isobench.models import encoders, tokenization
from isobench.runs.identity import identify
from isobench.training.build import make_loaders


def time_command(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "isobench", *arguments], capture_output=True, check=False)
    return time.perf_counter() - start


def main() -> None:
    wait = {
        "help": statistics.median(time_command("--help") for _ in range(5)),
        "config error": statistics.median(time_command("task=rtee") for _ in range(5)),
    }
    fresh, again = [], []
    with tempfile.TemporaryDirectory() as cache:
        for number in range(6):
            cfg = compose_config(f"data.cache={cache}/{number}")
            identity, tokenizer = identify(cfg), tokenization.load_tokenizer(cfg.encoder, None)
            loaded = encoders.load_encoder(cfg.encoder, None, seed=1)
            for times in (fresh, again):
                start = time.perf_counter()
                make_loaders(cfg, identity, tokenizer, loaded)
                times.append(time.perf_counter() - start)
    wait |= {"tokenise": statistics.median(fresh[1:]), "tokens from cache": statistics.median(again[1:])}
    for name, value in wait.items():
        print(f"{name}: {value:.3f} s")
    print(f"cache: {wait['tokenise'] / wait['tokens from cache']:.0f}x faster than tokenising")
    write_result("startup", wait)


if __name__ == "__main__":
    main()
