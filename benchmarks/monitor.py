"""Measure what the isotropy monitor's measures of an epoch cost, relative to the evaluation that they follow.

    python benchmarks/monitor.py [--encoder minilm] [--task rotten_tomatoes] [--rounds 7]

It evaluates the task's dev set, then measures its embeddings: all measures that need no classes, and those by class
(silhouette, and the best threshold on a coordinate). Times are processor times of this process.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from common import build_run, compose_config, median_ratio, time_alternately, write_result

import torch

from isobench.metrics import class_summary, isotropy_summary


def take_processor_time(call: Callable[[], object]) -> float:
    """Return the seconds of processor time that one call takes."""
    start = time.process_time()
    call()
    return time.process_time() - start


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--task", default="rotten_tomatoes")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    cfg = compose_config(f"encoder={arguments.encoder}", f"task={arguments.task}", "task.train_samples=64")
    module, loaders = build_run(cfg)
    module.eval().on_validation_epoch_start()
    batches = list(loaders.dev[0])

    def evaluate() -> list[torch.Tensor]:
        module.on_validation_epoch_start()
        return [module.validation_step(batch, index)["embedding"] for index, batch in enumerate(batches)]

    embeddings, classes = evaluate(), torch.cat([batch["labels"] for batch in batches])
    contestants = {
        "evaluation": evaluate,
        "measures without classes": lambda: isotropy_summary(lambda: embeddings, range(1, 51)),
        "measures by class": lambda: class_summary(torch.cat(embeddings), classes),
    }
    timed = {name: lambda _, call=call: take_processor_time(call) for name, call in contestants.items()}
    seconds = time_alternately(timed, arguments.rounds)
    result = {
        name: {"seconds": statistics.median(values), "of evaluation": median_ratio(values, seconds["evaluation"])}
        for name, values in seconds.items()
    }
    print(f"{len(classes)} dev examples, d = {embeddings[0].shape[1]}")
    for name, row in result.items():
        print(f"{name:26} {row['seconds']:8.3f} s {row['of evaluation']:8.1%} of an evaluation")
    write_result(f"monitor_{arguments.encoder}_{arguments.task}", {"rounds": arguments.rounds, "measures": result})


if __name__ == "__main__":
    main()
