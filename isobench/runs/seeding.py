"""Separate random streams for initialisation, data order and dropout (Dodge et al. 2020)."""

import hashlib
import random

from isobench.config.schema import Config

STREAMS = ("init", "order", "dropout")


def resolve_seeds(cfg: Config) -> dict[str, int]:
    """Choose each stream's seed: the one set in ``seeds``, else one derived from ``seed``."""
    chosen = {stream: getattr(cfg.seeds, stream) for stream in STREAMS}
    return {stream: derive_seed(cfg.seed, stream) if value is None else value for stream, value in chosen.items()}


def choose_dropout(cfg: Config) -> str:
    """Return ``trainer.dropout``, with ``auto`` replaced by ``torch`` where the settings rule ``lanes`` out.

    ``auto`` that stays means lanes on a CPU and torch's dropout on any other device.
    """
    return "torch" if cfg.trainer.dropout == "auto" and find_lane_obstacle(cfg) else cfg.trainer.dropout


def find_lane_obstacle(cfg: Config) -> str | None:
    """Return the setting that rules out dropout by lanes (isobench/models/dropout.py), None if there is none.

    Gradient checkpointing restores torch's generator only, before it computes activations again. A compiled encoder
    can't contain numpy's generator. The models of translation and summarisation mostly call torch's function.
    """
    if cfg.task.generation:
        return f"task={cfg.task.name}"
    if cfg.encoder.gradient_checkpointing:
        return "encoder.gradient_checkpointing=true"
    return "encoder.compile=true" if cfg.encoder.compile else None


def derive_seed(seed: int, stream: str) -> int:
    """Derive a stream's seed, in [0, 2^31), by a hash, so that the streams of one seed are unrelated."""
    digest = hashlib.sha256(f"{stream}:{seed}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def seed_everything(seed: int) -> None:
    """Seed every global generator (Python, NumPy, torch on all devices)."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
