"""Estimate how much memory the largest of some planned runs needs: a line of what ``dry_run`` shows.

The estimate is a formula of a transformer's sizes; no model is built and no weights are read. AdamW keeps 16 bytes
for each parameter (weight, gradient, two moments), the backward pass about 16 vectors for each token and layer. It is
rough: what a calibration keeps, a CPU's attention weights and what the allocator loses are not in it.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import sha256_json
from isobench.common.terminal import make_console
from isobench.config.schema import Config, Encoder
from isobench.training.execute import format_run_name

GIB = 2**30
BYTES_OF_PARAMETER = 16
VECTORS_OF_LAYER = 16  # kept for the backward pass; a decoder's layer, which also attends to the source, keeps more
DECODER_SHARE = 1.5  # what a decoder's layer keeps, in layers of an encoder
BYTES_OF_ENTRY = {"32-true": 4, "bf16-mixed": 3, "16-mixed": 3}


def print_memory_forecast(configs: Sequence[Config]) -> None:
    """Print how much memory the largest of these runs needs, or what is unknown and why; nothing without runs."""
    for line in describe_memory(configs):
        make_console().print(line, highlight=False, markup=False, soft_wrap=True)


def describe_memory(configs: Sequence[Config]) -> list[str]:
    """Describe the memory of the largest of these runs, after a line for each encoder whose config is not known."""
    lines, sizes = [], []
    models: dict[str, Any] = {}
    for cfg in configs:
        encoder = sha256_json(dataclasses.asdict(cfg.encoder))
        if encoder not in models:
            try:
                models[encoder] = read_encoder_config(cfg.encoder)
            except UserError as error:
                models[encoder] = None
                lines.append(f"Memory: unknown, because {error}")
        if models[encoder] is not None:
            sizes.append((estimate_bytes(cfg, models[encoder]), cfg))
    if sizes:
        size, cfg = max(sizes, key=lambda pair: pair[0])
        lines.append(
            f"Memory of the largest run: roughly {format_gib(size)} in training ({format_run_name(cfg)}, "
            f"{cfg.trainer.precision}, all texts as long as task.max_length)"
        )
    return lines


def estimate_bytes(cfg: Config, model: Any) -> int:
    """Estimate the bytes that a run's training needs; ``model`` is its encoder's transformers config.

    Every text of a batch is taken to be as long as the limit.
    """
    from isobench.models.loading import read_max_positions

    o, task, generation = cfg.optimization, cfg.task, cfg.task.generation
    source = min(task.max_length, read_max_positions(model))
    target = min(generation.max_length, read_max_positions(model)) if generation else 0
    examples = max(1, o.batch_tokens // (source + target)) if o.batch_tokens else o.batch_size
    width, layers = model.hidden_size, model.num_hidden_layers
    parameters = 12 * layers * width**2 * (1 + DECODER_SHARE * bool(target)) + model.vocab_size * width
    kept = VECTORS_OF_LAYER * layers
    if cfg.encoder.gradient_checkpointing:  # each layer's input, and all of the layer that is at work
        kept = VECTORS_OF_LAYER + layers
    vectors = examples * (source + DECODER_SHARE * target) * kept
    return int(BYTES_OF_PARAMETER * parameters + BYTES_OF_ENTRY[cfg.trainer.precision] * width * vectors)


def read_encoder_config(cfg: Encoder) -> Any:
    """Read an encoder's transformers config: from its settings, its folder, its package, the hub's cache or the hub.

    Raises:
        UserError: there is no config, and why.
    """
    from transformers import AutoConfig

    from isobench.data import hub, weights
    from isobench.data.packaged.encoders import DISTILBERT_CONFIG, MPNET_CONFIG, find_packaged_weights
    from isobench.models.loading import silence_transformers

    source = weights.find_encoder_source(cfg)
    is_cached = source == "hub" and _is_config_cached(cfg)
    if source == "hub" and not is_cached and not hub.is_reachable():
        raise UserError(f"encoder={cfg.name}: the hub can't be reached and the model's config is not in its cache")
    silence_transformers()
    if source == "scratch":
        settings = {"vocab_size": cfg.vocabulary_size} if cfg.vocabulary_size else {}
        return AutoConfig.for_model(**settings | dict(cfg.scratch or {}))
    if source == "embedded" and cfg.embedded in ("distilbert", "mpnet"):
        return AutoConfig.for_model(**(MPNET_CONFIG if cfg.embedded == "mpnet" else DISTILBERT_CONFIG))
    name, options = str(cfg.hub), {"revision": cfg.revision, "local_files_only": is_cached}
    if source != "hub":
        path = Path(str(cfg.path)).expanduser() if source == "path" else find_packaged_weights(cfg).parent
        name, options = str(path), {}
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=cfg.trust_remote_code, **options)
    except Exception as error:  # transformers raises many kinds
        raise UserError(f"encoder={cfg.name} has no config that can be read: {extract_first_line(error)}") from error


def _is_config_cached(cfg: Encoder) -> bool:
    import huggingface_hub

    file = huggingface_hub.try_to_load_from_cache(str(cfg.hub), "config.json", revision=cfg.revision)
    return isinstance(file, str)


def format_gib(size: float) -> str:
    """Format a number of bytes in GiB, or in MiB if it is less than one."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / 2**20:.0f} MiB"
