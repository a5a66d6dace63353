"""Forecast which paper-scale experiment fits into which GPU, and what to set where it does not.

    python benchmarks/memory.py [--experiments glue_isobn mt_calibration ...]

No weights, data, hub or GPU are needed. The configs of the papers' encoders are written out below, because the hub's
can't always be read; their sizes are those that the models' papers publish. For each encoder of an experiment the run
is taken that needs most memory, with every text as long as ``task.max_length``. Its training step is carried out with
fake tensors (isobench/training/memory.py). On a GPU nothing was measured.

A run counts as fitting if its tensors need at most 90% of what is left of the GPU's memory after 1 GiB for the
device's context, kernels and their working memory. The other 10% are for what the allocator loses.

The search of an evaluation is not a training step. For it, the benchmark adds up weights, gradients and optimiser,
the keys and values of all beams in float32, and four matrices of logits [beams, V]: an estimate by formula.
"""

import argparse
import dataclasses
import os
from typing import Any

os.environ.pop("ISOBENCH_DATA", None)  # the papers' own data decide nothing here, and part of them may lie there

from common import write_result

from transformers import AutoConfig

from isobench.config.schema import Config
from isobench.sweep.memory_forecast import GIB, find_largest, list_shape
from isobench.sweep.plan import compose_sweep, plan_runs
from isobench.training.memory import PARTS, forecast_memory

EXPERIMENTS = (
    "glue_isobn", "glue_calibration", "glue_adaptation", "glue_adaptation_large", "isobn_drift", "mt_calibration",
    "summarization_calibration",
)  # fmt: skip
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
CONFIGS = {
    "bert-base-cased": ("bert", {"vocab_size": 28996}),
    "bert-base-uncased": ("bert", {"vocab_size": 30522}),
    "bert-large-wwm": ("bert", {"vocab_size": 30522} | LARGE),
    "roberta-base": ("roberta", ROBERTA),
    "roberta-large": ("roberta", ROBERTA | LARGE),
    "distilbert-base-cased": ("distilbert", {"vocab_size": 28996}),
    "bart-base": (
        "bart",
        {"vocab_size": 50265, "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 3072,
         "decoder_ffn_dim": 3072, "encoder_attention_heads": 12, "decoder_attention_heads": 12},
    ),
    "mbart-large-cc25": ("mbart", {"vocab_size": 250027, "scale_embedding": True}),  # else transformers' defaults
}  # fmt: skip
GPUS = (16, 24, 40, 80)  # GiB
CONTEXT, SHARE = 1 * GIB, 0.9
# Tried in this order. The first changes results by rounding only, and takes longer.
CHECKPOINTING = ("encoder.gradient_checkpointing=true",)
BF16 = ("trainer.precision=bf16-mixed",)
MAX_DIVISOR = 16  # of the batch size, by optimization.accumulate


def find_largest_runs(experiment: str) -> dict[str, tuple[Config, Any]]:
    """Return the run that needs most memory of each encoder of an experiment at the papers' scale."""
    with compose_sweep([f"+experiment={experiment}", "scale=paper", "seed=1"]) as parts:
        configs = [run.row.cfg for run in plan_runs(*parts).values()]
    shapes: dict[str, dict[str, tuple[Config, Any]]] = {}
    for cfg in configs:
        kind, settings = CONFIGS[cfg.encoder.name]
        config = AutoConfig.for_model(kind, **settings)
        shapes.setdefault(cfg.encoder.name, {})[repr(list_shape(cfg))] = (cfg, config)
    return {encoder: find_largest(list(known.values())) for encoder, known in shapes.items()}


def change(cfg: Config, settings: tuple[str, ...], divisor: int = 1) -> Config:
    """Change a run's settings as the command line would, and divide its batches."""
    o = cfg.optimization
    if divisor > 1:
        o = dataclasses.replace(o, batch_size=o.batch_size // divisor, accumulate=o.accumulate * divisor)
    precision = "bf16-mixed" if BF16[0] in settings else cfg.trainer.precision
    return dataclasses.replace(
        cfg,
        optimization=o,
        encoder=dataclasses.replace(cfg.encoder, gradient_checkpointing=CHECKPOINTING[0] in settings),
        trainer=dataclasses.replace(cfg.trainer, precision=precision),
    )


def list_choices(cfg: Config) -> list[tuple[tuple[str, ...], int]]:
    """List the settings to try, the least change first: checkpointing, bf16, both, smaller batches."""
    choices = [((), 1), (CHECKPOINTING, 1), (BF16, 1), (CHECKPOINTING + BF16, 1)]
    divisor = 2
    while divisor <= MAX_DIVISOR and cfg.optimization.batch_size % divisor == 0:
        choices.append((CHECKPOINTING, divisor))
        divisor *= 2
    return choices


def describe_choice(cfg: Config, settings: tuple[str, ...], divisor: int) -> str:
    """Write the settings of a choice as on the command line."""
    o = cfg.optimization
    batch = (f"optimization.batch_size={o.batch_size // divisor}", f"optimization.accumulate={divisor}")
    return " ".join([*settings, *(batch if divisor > 1 else ())])


def choose_eval_batch(cfg: Config, config: Any, parts: dict[str, int], room: float) -> int | None:
    """Return the largest ``trainer.eval_batch_size`` whose beam search fits, by the estimate above, or None."""
    g, size = cfg.task.generation, cfg.trainer.eval_batch_size
    fixed = parts["weights"] + parts["optimiser"] + parts["weights"]  # gradients are as large as the weights
    keys_and_values = 2 * config.decoder_layers * (cfg.task.max_length + g.max_length) * config.d_model
    while size and fixed + 4 * size * g.beams * (keys_and_values + 4 * config.vocab_size) > room:
        size //= 2
    return size or None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS)
    arguments = parser.parse_args()
    rows = []
    for experiment in arguments.experiments:
        for encoder, (cfg, config) in find_largest_runs(experiment).items():
            method, batch = cfg.calibration["name"], cfg.optimization.batch_size
            print(f"\n{experiment}, {encoder}: {cfg.task.name} {method}, batch {batch}")
            sizes = {}
            for settings, divisor in list_choices(cfg):
                parts = forecast_memory(change(cfg, settings, divisor), config)
                name = describe_choice(cfg, settings, divisor) or "as it is"
                sizes[name] = parts.total()
                details = ", ".join(f"{part} {parts[part] / GIB:.2f}" for part in PARTS)
                print(f"  {parts.total() / GIB:6.1f} GiB  {name}  ({details})", flush=True)
                if parts.total() <= SHARE * (min(GPUS) * GIB - CONTEXT) and len(sizes) >= 4:
                    break
            fits = {}
            for gpu in GPUS:
                room = SHARE * (gpu * GIB - CONTEXT)
                fits[gpu] = next((name for name, size in sizes.items() if size <= room), "no setting tried here")
                if cfg.task.generation:
                    fits[gpu] += f"; trainer.eval_batch_size={choose_eval_batch(cfg, config, parts, room)}"
                print(f"  {gpu} GiB: {fits[gpu]}")
            rows.append(
                {"experiment": experiment, "encoder": encoder, "task": cfg.task.name, "method": method,
                 "batch": batch, "bytes": sizes, "fits": fits}
            )  # fmt: skip
    write_result("memory", {"rows": rows, "context": CONTEXT, "share": SHARE})


if __name__ == "__main__":
    main()
