"""Measure what each calibration method adds to a training step of translation.

    python benchmarks/method_overhead_seq2seq.py [--size small|base] [--rounds 5] [--batch 48]

The step ratio is the median over rounds of (step with the method) / (step without), with the same weights and
batches, measured in turns. The size ``base`` has the shape of BART-base with a vocabulary of 32,000; ``small`` is
encoder=bart-scratch. The paper's ratios are printed beside ours (On Isotropy Calibration of Transformers, Tables 2, 3
and 5).
"""

import argparse

from common import compose_config, median_ratio, time_alternately, time_training_step, write_result

import torch

from isobench.runs.identity import identify
from isobench.training.build import build_run_parts
from isobench.training.instantiate import instantiate_chain
from isobench.training.train import configure_process

METHODS = {  # name: (overrides, the paper's overhead)
    "cosine": (["calibration=cosine"], "1.0x"),
    "spectrum_polynomial": (["calibration=spectrum_polynomial"], "1.0-1.63x"),
    "spectrum_exponential": (["calibration=spectrum_exponential"], "0.94-1.57x"),
    "flow": (["calibration=flow"], "5.6-10.7x"),
    "isobn_paper": (["calibration=isobn_paper"], ""),
    "all_but_the_top": (["calibration=all_but_the_top"], ""),
}
SIZES = {"small": (256, 1, 512, 4), "base": (768, 6, 3072, 12)}  # width, layers, feed-forward, heads
VOCABULARY = 32_000  # of the size base; the tokenizer of the captions has far fewer words


def build_scratch_overrides(size: str) -> list[str]:
    """Build the overrides of a model of this size that starts from random weights."""
    width, layers, inner, heads = SIZES[size]
    settings = {"d_model": width}
    for side in ("encoder", "decoder"):
        settings |= {f"{side}_layers": layers, f"{side}_ffn_dim": inner, f"{side}_attention_heads": heads}
    return [f"encoder.scratch.{name}={value}" for name, value in settings.items()]


class Seq2SeqStepper:
    """One translation model whose calibration chain is exchanged, so that all methods train the same weights."""

    def __init__(self, size: str, batch: int) -> None:
        self.base_overrides = [
            "task=captions", "task.train_samples=512", "task.dev_samples=8",
            "encoder=bart-scratch", *build_scratch_overrides(size),
            "optimization=isotropy_calibration_seq2seq", f"optimization.batch_size={batch}",
        ]  # fmt: skip
        if size == "base":
            self.base_overrides.append(f"+encoder.scratch.vocab_size={VOCABULARY}")
        cfg = compose_config(*self.base_overrides)
        configure_process(cfg)
        self.module, self.loaders, *_ = build_run_parts(cfg, identify(cfg))
        self.module.log = lambda *_, **__: None  # type: ignore[method-assign]
        self.batches = list(self.loaders.train)
        self.optimizer = self.module.configure_optimizers()["optimizer"]
        self.plain_chain = self.module.chain

    def make_contestant(self, overrides: list[str]):
        """Make a function that takes a round's number and returns the seconds of a step with this method."""
        chain = instantiate_chain(
            compose_config(*self.base_overrides, *overrides).calibration, self.plain_chain.out_dim
        ).train()
        groups = chain.parameter_groups()
        own = torch.optim.AdamW(groups, fused=True) if groups else None

        def step(number: int) -> float:
            self.module.chain = self.module.projection.chain = chain
            return time_training_step(self.module, self.batches[number % len(self.batches)], self.optimizer, own)

        return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(METHODS)}; all by default")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--batch", type=int, default=48, help="sentence pairs; the paper's is 48")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    stepper = Seq2SeqStepper(arguments.size, arguments.batch)
    names = arguments.names or list(METHODS)
    contestants = {"none": stepper.make_contestant(["calibration=none"])}
    contestants |= {name: stepper.make_contestant(METHODS[name][0]) for name in names}
    seconds = time_alternately(contestants, arguments.rounds)
    ratios = {name: median_ratio(seconds[name], seconds["none"]) for name in names}
    print(f"{arguments.size}: {sum(p.numel() for p in stepper.module.model.parameters()):,} parameters")
    print(f"{'method':22} {'step ratio':>10}   the paper's")
    for name, value in ratios.items():
        print(f"{name:22} {value:10.2f}   {METHODS[name][1]}")
    record = {"rounds": arguments.rounds, "batch": arguments.batch, "ratios": ratios, "seconds": seconds}
    write_result(f"seq2seq_{arguments.size}", record)


if __name__ == "__main__":
    main()
