"""Compare training steps with torch's dropout and with dropout by 16-bit lanes .

    python benchmarks/dropout.py [--rounds 5] [--steps 6] [--threads N] [--batch 16]

Two copies of MiniLM train on the same batches of Rotten Tomatoes in turns, in one process. Prints the median over
rounds of the ratio of their times. Also times one dropout layer alone, forward and backward, on a tensor of a batch.
"""

import argparse
import os
import statistics
from unittest.mock import patch

os.environ |= {"HF_HUB_OFFLINE": "1"}
os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as isobench's commands set it

from common import (
    compose_config,
    median_ratio,
    prepare_bare_steps,
    time_alternately,
    time_call,
    time_training_step,
    write_result,
)

import torch

from isobench.models.dropout import CpuDropout, DropoutNumbers

LAYER = (443, 384)  # tokens of 16 sentences on average, and MiniLM's width
LAYER_CALLS = 50


def prepare_steps(dropout: str, batch: int, steps: int, threads: int | None):
    """Build a run with a kind of dropout; returns a function that times some steps."""
    cfg = compose_config(
        "task=rotten_tomatoes", f"optimization.batch_size={batch}",
        f"trainer.threads={threads or 'null'}", "trainer.accelerator=cpu",
    )  # fmt: skip
    with patch("isobench.training.build.uses_cpu_dropout", lambda cfg: dropout == "lanes"):
        module, batches, optimizer = prepare_bare_steps(cfg, steps)
    return lambda _: sum(time_training_step(module, batch, optimizer) for batch in batches)


def prepare_layer(layer: torch.nn.Module):
    """Return a function that times calls of a dropout layer, forward and backward."""
    x, gradient = torch.randn(LAYER, requires_grad=True), torch.randn(LAYER)

    def call_often() -> None:
        for _ in range(LAYER_CALLS):
            layer(x).backward(gradient)

    return lambda _: time_call(call_often)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    steps = {name: prepare_steps(name, options.batch, options.steps, options.threads) for name in ("torch", "lanes")}
    layers = {"torch": torch.nn.Dropout(0.1), "lanes": CpuDropout(0.1, DropoutNumbers(1))}
    found = {}
    for kind, contestants, calls in (
        ("step", steps, options.steps),
        ("layer", {name: prepare_layer(layer) for name, layer in layers.items()}, LAYER_CALLS),
    ):
        seconds = time_alternately(contestants, options.rounds)
        found[kind] = {
            "torch / lanes": median_ratio(seconds["torch"], seconds["lanes"]),
            "seconds": {name: statistics.median(values) / calls for name, values in seconds.items()},
        }
        times = " / ".join(f"{1000 * value:.2f}" for value in found[kind]["seconds"].values())
        print(f"{kind}: torch {found[kind]['torch / lanes']:.2f}x lanes ({times} ms)", flush=True)
    write_result("dropout", {**vars(options), "threads used": torch.get_num_threads(), **found})


if __name__ == "__main__":
    main()
