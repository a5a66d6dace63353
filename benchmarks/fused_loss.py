"""Compare a training step of translation before and after the fused cross-entropy and the shared word lookup.

    python benchmarks/fused_loss.py [--size small|base] [--batch 16] [--rounds 5] [--tokens 768]

Four ways to compute the same loss and gradients:
- ``before`` makes the logits of all tokens, calls torch's cross-entropy, and looks up the words of each chunk of the
  batch by itself;
- ``plain`` does the same, but looks up all words of a batch at once;
- ``checkpointed`` also makes the logits for 256 tokens at a time, and again in the backward pass;
- ``fused`` is what isobench does: logits for a chunk of tokens, whose gradients are computed in the forward pass.

The step ratio is the median over rounds of before / other, with the same weights and batches, measured in turns in
one process. Peak memory is measured in a process of its own for each way: that of a training step (of the whole
process, and what a step adds to weights and optimiser), and what the loss alone adds, with its gradients, for
``--tokens`` target tokens. The size ``base`` has the shape of BART-base with a vocabulary of 32,000.
"""

import argparse
import contextlib
import json
import subprocess
import sys
from functools import partial

from common import median_ratio, time_alternately, time_call, time_training_step, write_result

import torch
from method_overhead_seq2seq import SIZES, VOCABULARY, Seq2SeqStepper
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from isobench.common.provenance import read_peak_memory_mib, reset_peak_memory
from isobench.training.fused_loss import fused_cross_entropy
from isobench.training.seq2seq import WordLookup

CHECKPOINTED_TOKENS = 256
SMOOTHING = 0.1
KINDS = ("step", "loss")


def plain_cross_entropy(
    states: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Sum the cross-entropy from the logits of all tokens; arguments as of ``fused_cross_entropy``."""
    logits = nn.functional.linear(states, weight, bias).float()
    return nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")


def checkpointed_cross_entropy(
    states: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Sum the cross-entropy over chunks whose logits are computed again in the backward pass."""
    chunks = zip(states.split(CHECKPOINTED_TOKENS), labels.split(CHECKPOINTED_TOKENS), strict=True)
    losses = [
        checkpoint(plain_cross_entropy, h, weight, its_labels, bias, smoothing, use_reentrant=False)
        for h, its_labels in chunks
    ]
    return torch.stack(losses).sum()


WAYS = {
    "before": plain_cross_entropy,
    "plain": plain_cross_entropy,
    "checkpointed": checkpointed_cross_entropy,
    "fused": fused_cross_entropy,
}


def use_way(stepper: Seq2SeqStepper, way: str) -> None:
    """Make the stepper's model look up words and compute its loss in this way."""
    module = stepper.module
    weight, bias = module.projection.linear.weight, module.model.final_logits_bias[0]
    module.projection.sum_losses = lambda h, labels, smoothing=0.0: WAYS[way](h, weight, labels, bias, smoothing)
    module.words.share = contextlib.nullcontext if way == "before" else partial(WordLookup.share, module.words)


def time_steps(stepper: Seq2SeqStepper, rounds: int) -> dict[str, list[float]]:
    """Measure a training step in each way, in turns; returns seconds of each round."""

    def make_contestant(way: str):
        def step(number: int) -> float:
            use_way(stepper, way)
            batch = stepper.batches[number % len(stepper.batches)]
            return time_training_step(stepper.module, batch, stepper.optimizer)

        return step

    return time_alternately({way: make_contestant(way) for way in WAYS}, rounds)


def measure_step_memory(size: str, batch: int, way: str) -> dict[str, float]:
    """Return the peak MiB of this process in three training steps, and what they add to weights and optimiser."""
    stepper = Seq2SeqStepper(size, batch)
    use_way(stepper, way)
    time_training_step(stepper.module, stepper.batches[0], stepper.optimizer)  # makes the optimiser's state
    reset_peak_memory()
    before = read_peak_memory_mib()["resident"]
    for number in range(3):
        time_training_step(stepper.module, stepper.batches[number % len(stepper.batches)], stepper.optimizer)
    peak = read_peak_memory_mib()["resident"]
    return {"whole process": peak, "added by the step": peak - before}


def measure_loss_memory(size: str, tokens: int, way: str) -> dict[str, float]:
    """Return the MiB that the loss and the gradients of random states and weights add at their peak."""
    width = SIZES[size][0]
    states = torch.randn(tokens, width, requires_grad=True)
    weight = torch.full((VOCABULARY, width), 0.01, requires_grad=True)
    labels = torch.randint(VOCABULARY, (tokens,))
    WAYS[way](states[:8], weight, labels[:8], None, SMOOTHING).backward()
    states.grad = weight.grad = None
    reset_peak_memory()
    before = read_peak_memory_mib()["resident"]
    seconds = time_call(lambda: WAYS[way](states, weight, labels, None, SMOOTHING).backward())
    return {"added by the loss": read_peak_memory_mib()["resident"] - before, "seconds": seconds}


def measure_in_own_process(kind: str, way: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Run this file again for one measurement of memory, and read what it prints."""
    command = [sys.executable, __file__, "--memory", kind, "--way", way, "--size", arguments.size]
    command += ["--batch", str(arguments.batch), "--tokens", str(arguments.tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch", type=int, default=16, help="sentence pairs of a step")
    parser.add_argument("--tokens", type=int, default=768, help="target tokens of the loss alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", choices=KINDS, help="only print this memory of one way, as JSON")
    parser.add_argument("--way", choices=WAYS, default="fused")
    arguments = parser.parse_args()
    if arguments.memory:
        if arguments.memory == "step":
            measured = measure_step_memory(arguments.size, arguments.batch, arguments.way)
        else:
            measured = measure_loss_memory(arguments.size, arguments.tokens, arguments.way)
        print(json.dumps(measured))
        return
    memory = {way: {} for way in WAYS}
    for kind in KINDS:
        for way in WAYS:
            memory[way] |= measure_in_own_process(kind, way, arguments)
    stepper = Seq2SeqStepper(arguments.size, arguments.batch)
    seconds = time_steps(stepper, arguments.rounds)
    ratios = {way: median_ratio(seconds["before"], seconds[way]) for way in WAYS}
    words = stepper.module.projection.linear.out_features
    print(f"{arguments.size}: a step of {arguments.batch} sentence pairs, {words:,} words")
    print(f"{'':14} {'step ratio':>10} {'whole process':>14} {'added by the step':>18} {'added by the loss':>18}")
    for way in WAYS:
        columns = [memory[way][name] for name in ("whole process", "added by the step", "added by the loss")]
        print(f"{way:14} {ratios[way]:9.2f}x {columns[0]:10.0f} MiB {columns[1]:14.0f} MiB {columns[2]:14.0f} MiB")
    record = {**vars(arguments), "words": words, "ratios": ratios, "seconds": seconds, "memory_mib": memory}
    write_result(f"fused_loss_{arguments.size}", record)


if __name__ == "__main__":
    main()
