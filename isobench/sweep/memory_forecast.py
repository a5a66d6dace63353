"""Forecast in one line how much memory the largest of some planned runs needs: a part of what ``dry_run`` shows."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import sha256_json
from isobench.common.terminal import make_console
from isobench.config.schema import Config
from isobench.training.execute import format_run_name

GIB = 2**30


def print_memory_forecast(configs: Sequence[Config]) -> None:
    """Print how much memory the largest of these runs needs, or what is unknown and why; nothing without runs."""
    for line in describe_memory(configs):
        make_console().print(line, highlight=False, markup=False, soft_wrap=True)


def describe_memory(configs: Sequence[Config]) -> list[str]:
    """Describe the memory of the largest of these runs, after a line for each encoder whose config is not known."""
    lines, known = [], []
    for cfg, config in read_configs(configs):
        if isinstance(config, UserError):
            lines.append(f"Memory: unknown, because {config}")
        else:
            known.append((cfg, config))
    if known:
        try:
            lines.append(describe_largest(known))
        except Exception as error:  # a method or a model of somebody's own may do what needs a value
            lines.append(f"Memory: unknown, because a step without values failed: {extract_first_line(error)}")
    return lines


def read_configs(configs: Sequence[Config]) -> list[tuple[Config, Any]]:
    """Return one run of each shape, with the transformers config of its encoder or the error that says it has none.

    An encoder without a config is returned once.
    """
    from isobench.models.skeletons import read_encoder_config

    by_encoder: dict[str, Any] = {}
    shapes: dict[str, tuple[Config, Any]] = {}
    for cfg in configs:
        encoder = sha256_json(dataclasses.asdict(cfg.encoder))
        if encoder not in by_encoder:
            try:
                by_encoder[encoder] = read_encoder_config(cfg.encoder)
            except UserError as error:
                by_encoder[encoder] = error
        config = by_encoder[encoder]
        key = encoder if isinstance(config, UserError) else sha256_json([encoder, list_shape(cfg)])
        shapes.setdefault(key, (cfg, config))
    return list(shapes.values())


def list_shape(cfg: Config) -> list[Any]:
    """List the settings that decide a run's memory, apart from its encoder; of runs with equal ones one is enough."""
    o, task = cfg.optimization, cfg.task
    batch = [o.batch_size, o.batch_tokens, o.accumulate > 1, o.clip is None]
    texts = [task.max_length, task.generation.max_length if task.generation else None, len(task.labels or [])]
    return [*batch, *texts, cfg.calibration, cfg.head.name, cfg.trainer.precision]


def find_largest(known: Sequence[tuple[Config, Any]]) -> tuple[Config, Any]:
    """Find the run that needs most memory, of runs with their encoders' configs.

    A rough formula chooses encoder, batch and precision; of the methods, the one that needs most by itself is taken.
    """
    from isobench.training.memory import compare_methods_memory

    sizes = [estimate_roughly(cfg, config) for cfg, config in known]
    largest = [pair for pair, size in zip(known, sizes, strict=True) if size == max(sizes)]
    by_method = {sha256_json(cfg.calibration): (cfg, config) for cfg, config in reversed(largest)}
    if len(by_method) == 1:
        return largest[0]
    return max(by_method.values(), key=lambda pair: compare_methods_memory(*pair))


def describe_largest(known: Sequence[tuple[Config, Any]]) -> str:
    """Forecast the run that needs most memory, and describe it in one line."""
    from isobench.training.memory import PARTS, count_longest_tokens, forecast_memory

    cfg, config = find_largest(known)
    on_gpu = cfg.trainer.accelerator != "cpu"
    parts = forecast_memory(cfg, config, on_gpu)
    examples, source, target = count_longest_tokens(cfg, config)
    texts = f"{examples} texts of {source} tokens" + (f" and targets of {target}" if target else "")
    details = ", ".join(f"{name} {parts[name] / GIB:.2f}" for name in PARTS if parts[name] >= GIB / 200)
    device = "GPU" if on_gpu else "CPU"
    return (
        f"Memory of the largest run on a {device} (forecast): {format_gib(parts.total())} of tensors for "
        f"{format_run_name(cfg)}, {texts}, {cfg.trainer.precision}, GiB: {details}"
    )


def format_gib(size: int) -> str:
    """Format a number of bytes in GiB, or in MiB if it is less than one."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / 2**20:.0f} MiB"


def estimate_roughly(cfg: Config, config: Any) -> float:
    """Estimate a run's bytes by a formula of transformers, only to find the largest of several runs."""
    from isobench.training.memory import count_longest_tokens

    examples, source, target = count_longest_tokens(cfg, config)
    width, layers = config.hidden_size, config.num_hidden_layers * (2 if target else 1)
    weights = 12 * layers * width**2 + config.vocab_size * width
    entries = examples * (source + target) * width * (1 if cfg.encoder.gradient_checkpointing else 16) * layers
    return 16 * weights + entries * (4 if cfg.trainer.precision == "32-true" else 3)
