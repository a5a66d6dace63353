"""What IsoBN adds to a training step.

    python benchmarks/isobn_overhead.py [--encoder minilm] [--pairs 15]

Two figures: the median over pairs of (step with IsoBN) / (step without), same batch, taken in turns; and,
less noisy, the time of IsoBN's own forward and backward over the time of a step without it.
"""

import argparse
import os
import statistics
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from common import config, save

from isobench.run import identify
from isobench.train import build, configure


def stepper(encoder: str, calibration: str):
    cfg = config(f"encoder={encoder}", f"calibration={calibration}", "task.train_samples=512")
    configure(cfg)
    module, loaders, _ = build(cfg, identify(cfg))
    module.train()
    optimizer = module.configure_optimizers()["optimizer"]

    def step(batch) -> float:
        start = time.perf_counter()
        h = module.embed(batch)
        module.task_loss(module.head(module.dropout(h)), batch["labels"]).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    return step, module, loaders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    plain, _, loaders = stepper(arguments.encoder, "none")
    isobn, module, _ = stepper(arguments.encoder, "isobn_paper")
    batches = list(loaders.train)
    pairs = []
    for number in range(arguments.pairs + 3):
        batch = batches[number % len(batches)]
        first, second = (plain, isobn) if number % 2 else (isobn, plain)
        one, two = first(batch), second(batch)
        if number >= 3:
            pairs.append((one, two) if number % 2 else (two, one))
    step_ratio = statistics.median(b / a for a, b in pairs)

    own = []
    h = torch.randn(32, module.chain.calibrations[0].dim, requires_grad=True)
    for _ in range(53):
        start = time.perf_counter()
        module.chain.calibrations[0](h).sum().backward()
        own.append(time.perf_counter() - start)
    share = statistics.median(own[3:]) / statistics.median(a for a, _ in pairs)
    print(f"step with IsoBN / step without: {step_ratio:.3f}; IsoBN alone / step: {share:.4f} (target at most 0.02)")
    result = {"encoder": arguments.encoder, "step ratio": step_ratio, "own share": share, "pairs": arguments.pairs}
    save("isobn_overhead", result)


if __name__ == "__main__":
    main()
