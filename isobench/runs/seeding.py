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
    """Return ``torch`` where a run's dropout is torch's on every device, else ``auto``: isobench's own on a CPU.

    Gradient checkpointing restores torch's generator only, before it computes activations again. The models of
    translation and summarisation mostly call torch's function.
    """
    return "torch" if cfg.task.generation or cfg.encoder.gradient_checkpointing else "auto"


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
