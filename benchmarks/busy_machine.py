"""Measure what another busy program on the machine costs a training step.

    python benchmarks/busy_machine.py [--rounds 5] [--steps 6]

Two processes train MiniLM on the same batch of 16 Rotten Tomatoes sentences, in turns: one as isobench starts
(as ``common`` does), one with torch's own waiting policy. Each is timed alone, and beside a process that keeps one
core busy. Prints the medians over rounds of two ratios: busy / alone (target: at most 1.7 as isobench starts), and
the step alone with isobench's policy / with torch's own (target: 1).
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator

from common import median_ratio, write_result

from isobench.common.environment import SPIN_SETTINGS

TARGET = 1.7
COMPETITOR = [sys.executable, "-c", "while True: pass"]


class Trainer:
    """A process that times steps when asked.

    Args:
        shares: whether it starts as isobench does, or with torch's own waiting policy.
        steps: how many steps it times at once.
    """

    def __init__(self, shares: bool, steps: int) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in SPIN_SETTINGS}
        command = [sys.executable, __file__, "--steps", str(steps), "--train", "shared" if shares else "own"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self.measure()  # the first steps warm up

    def measure(self) -> float:
        """Return the seconds that a step takes now."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def train(steps: int) -> None:
    """Time steps, once for every line of standard input, and print the seconds of one."""
    from common import compose_config, time_training_step

    import torch

    from isobench.runs.identity import identify
    from isobench.training.build import build_run_parts
    from isobench.training.train import configure_process

    cfg = compose_config("task=rotten_tomatoes", "task.train_samples=16", "optimization.batch_size=16")
    configure_process(cfg)
    module, loaders, *_ = build_run_parts(cfg, identify(cfg))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-5)
    batch = next(iter(loaders.train))
    for _ in sys.stdin:
        seconds = [time_training_step(module, batch, optimizer) for _ in range(steps)]
        print(statistics.median(seconds), flush=True)


@contextlib.contextmanager
def busy_machine() -> Iterator[None]:
    """A context in which a competitor keeps one core busy."""
    competitor = subprocess.Popen(COMPETITOR)
    try:
        yield
    finally:
        competitor.kill()
        competitor.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--train", choices=["shared", "own"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        if options.train == "own":
            for name in SPIN_SETTINGS:
                os.environ.pop(name, None)
        train(options.steps)
        return
    trainers = {"isobench": Trainer(True, options.steps), "torch": Trainer(False, options.steps)}
    alone: dict[str, list[float]] = {name: [] for name in trainers}
    busy: dict[str, list[float]] = {name: [] for name in trainers}
    for _ in range(options.rounds):
        for name, trainer in trainers.items():
            alone[name].append(trainer.measure())
            with busy_machine():
                busy[name].append(trainer.measure())
    for trainer in trainers.values():
        trainer.process.kill()
    ratios = {name: median_ratio(busy[name], alone[name]) for name in trainers}
    cost = median_ratio(alone["isobench"], alone["torch"])
    print(f"a step beside a busy program / alone: {ratios['isobench']:.2f}x (target: at most {TARGET}x)")
    print(f"the same with torch's own policy: {ratios['torch']:.2f}x")
    print(f"a step alone, with isobench's policy / with torch's own: {cost:.2f}x")
    seconds = {"alone": alone, "busy": busy}
    write_result("busy_machine", {"busy": ratios, "cost": cost, "seconds": seconds, "target": TARGET})


if __name__ == "__main__":
    main()
