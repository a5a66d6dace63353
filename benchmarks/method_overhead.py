"""Measure what each calibration method adds to a training step.

    python benchmarks/method_overhead.py [--encoder distilbert-quire] [--task rotten_tomatoes] [--pairs 7] [names ...]

Two figures for each method: the step ratio, which is the median over pairs of (step with the method) / (step
without), with the same weights and batch, measured in turns; and, less noisy, its own share, which is the time of its
own forward, backward and update divided by that of a step without it. For penalties on the vocabulary also the floor:
the share of the sums and products that they can't do without, as bare torch calls.

A method that reads the states of all tokens is compared with a plain step whose last layer computes all tokens too.
I-STAR on tokens misses its target: the covariance of these states and its gradient are a twentieth of the step's
operations. Whitening, all-but-the-top and spectrum control decompose a matrix at each step. On a vocabulary, spectrum
control also needs two products with the V x d matrix, of which it computes half of one; a bare float64 Gram product,
decomposition and gradient take 31% of a step, the method 28%.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from unittest.mock import patch

from common import build_run, compose_config, time_call, write_result

import torch

from isobench.training.instantiate import instantiate_chain

# name: (overrides; none for calibration=name, target for the step ratio or None)
METHODS: dict[str, tuple[list[str], float | None]] = {
    "isobn_paper": ([], 1.02),
    "isobn_released": ([], 1.02),
    "batch_norm": ([], 1.02),
    "fixed_norm_z": ([], 1.02),
    "gradient_norm": ([], 1.02),
    "center": ([], None),
    "center_scaled": ([], None),
    "all_but_the_top": ([], None),
    "whitening_zca": ([], None),
    "decorrelation": ([], 1.05),
    "uniformity": ([], 1.05),
    "sigreg": ([], 1.05),
    "cosine": ([], None),
    "cosine on the vocabulary": (["calibration=cosine", "calibration.target=vocabulary"], 1.05),
    "spectrum_polynomial": ([], 1.02),
    "spectrum_exponential": ([], 1.02),
    "spectrum on the vocabulary": (["calibration=spectrum_polynomial", "calibration.target=vocabulary"], 1.3),
    "flow": ([], 1.3),
    "istar": ([], 1.05),
    "istar on tokens": (["calibration=istar", "calibration.scope=tokens"], None),
}
ON_TOKENS = ("istar on tokens",)  # methods that read the states of all tokens


class ClassifierStepper:
    """One classifier whose calibration chain is exchanged, so that all methods train the same weights."""

    def __init__(self, encoder: str, task: str, *overrides: str) -> None:
        self.base_overrides = [f"encoder={encoder}", f"task={task}", "task.train_samples=512", *overrides]
        self.module, loaders = build_run(compose_config(*self.base_overrides))
        self.module.log = lambda *_, **__: None  # type: ignore[method-assign]
        self.batches = list(loaders.train)
        self.optimizer = self.module.configure_optimizers()["optimizer"]
        self.plain_chain = self.module.chain
        self.dim = self.plain_chain.out_dim

    def build_chain(self, overrides: list[str]):
        """Build a method's chain, and its optimiser if it has parameters of its own, else None."""
        chain = instantiate_chain(compose_config(*self.base_overrides, *overrides).calibration, self.dim).train()
        groups = chain.parameter_groups()
        return chain, torch.optim.AdamW(groups, fused=True) if groups else None

    def measure_step(self, chain, own, number: int) -> float:
        """Return the seconds of a training step with a chain and its own optimiser, on the batch of this number."""
        self.module.chain = chain
        start = time.perf_counter()
        self.module.training_step(self.batches[number % len(self.batches)], 0).backward()
        for optimizer in (self.optimizer, own):
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()
        return time.perf_counter() - start

    def measure_method_alone(self, chain, own) -> float:
        """Return the seconds of the method's own forward, backward and update, without the encoder."""
        vocabulary = self.module.encoder.vocabulary()
        for weight in (vocabulary, self.module.head.weight):
            weight.grad = torch.zeros_like(
                weight
            )  # as in training, where a penalty's gradient is added to the task's
        h = torch.randn(32, self.dim, requires_grad=True)
        with torch.no_grad():
            states = self.module.encode_with_tokens(self.batches[0])[1] if chain.reads_token_states else None
        if states is not None:
            states.requires_grad_()
        start = time.perf_counter()
        out, inputs = chain(h, torch.nn.Identity())
        matrices = {"head": lambda: self.module.head.weight, "vocabulary": lambda: vocabulary}
        sum(chain.losses(inputs, matrices, states), out.sum()).backward()
        if own is not None:
            own.step()
            own.zero_grad()
        seconds = time.perf_counter() - start
        self.optimizer.zero_grad()
        return seconds


def median_time(function: Callable[[], object], repeats: int = 5) -> float:
    """Return the median seconds of a call, after one call to warm up."""
    return statistics.median([time_call(function) for _ in range(repeats + 1)][1:])


@torch.no_grad()
def measure_lower_bounds(weight: torch.Tensor) -> dict[str, float]:
    """Return, by method, the seconds of the products and sums that a penalty on a vocabulary [V, d] needs."""
    precise, mix = weight.double(), torch.randn(weight.shape[1], weight.shape[1])
    gram = precise.T @ precise
    vector, gradient = torch.randn(weight.shape[1]), torch.zeros_like(weight)
    return {
        "spectrum on the vocabulary": median_time(lambda: precise.T @ precise)
        + median_time(lambda: torch.linalg.eigh(gram))
        + median_time(lambda: gradient.add_(weight @ mix)),
        "cosine on the vocabulary": median_time(
            lambda: (torch.linalg.vector_norm(weight, dim=1), weight @ vector, gradient.add_(weight))
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*METHODS, []], help="which methods; all by default")
    parser.add_argument("--encoder", default="distilbert-quire")
    parser.add_argument("--task", default="rotten_tomatoes")
    parser.add_argument("--pairs", type=int, default=7)
    arguments = parser.parse_args()
    usual = ClassifierStepper(arguments.encoder, arguments.task)
    lower_bounds = measure_lower_bounds(usual.module.encoder.vocabulary().detach())
    results = {}
    print(f"{'method':28} {'step ratio':>10} {'own share':>10} {'floor':>8} {'target':>7}")
    for name in arguments.names or METHODS:
        overrides, target = METHODS[name]
        stepper = usual
        if name in ON_TOKENS:
            with patch("isobench.models.encoders.restrict_to_first_token", lambda model: False):
                stepper = ClassifierStepper(arguments.encoder, arguments.task)
        chain, own = stepper.build_chain(overrides or [f"calibration={name}"])
        pairs = []
        for number in range(arguments.pairs + 1):
            contestants = [(stepper.plain_chain, None), (chain, own)]
            seconds = [stepper.measure_step(*c, number) for c in (contestants if number % 2 else contestants[::-1])]
            pairs.append(seconds if number % 2 else seconds[::-1])
        plain = statistics.median(a for a, _ in pairs[1:])
        ratio = statistics.median(b / a for a, b in pairs[1:])
        share = statistics.median(stepper.measure_method_alone(chain, own) for _ in range(6)) / plain
        floor = lower_bounds[name] / plain if name in lower_bounds else None
        columns = f"{ratio:10.3f} {share:10.4f} {'' if floor is None else f'{floor:.3f}':>8} {target or '':>7}"
        print(f"{name:28} {columns}", flush=True)
        results[name] = {"step ratio": ratio, "own share": share, "floor": floor, "target": target, "step s": plain}
    write_result(
        f"method_overhead_{arguments.encoder}_{arguments.task}", {"pairs": arguments.pairs, "methods": results}
    )


if __name__ == "__main__":
    main()
