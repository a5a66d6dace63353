"""A run's identity: the key under which its result is kept, and the fingerprints that go into it.

The key is the sha256 of everything that decides the result: the settings in ``KEY_SECTIONS``, the three seeds, the
fingerprints of the data and the pretrained weights, and ``PROTOCOL``. Paths, tracking, and where and how fast the run
is carried out are left out, so that the same run has the same key on every machine.

``_target_``, the class of a method or a monitor, is left out too: a class may move without making its results another
run's. So a class that computes something else needs another name, or a higher ``version``. Of a kind of task from
outside, all of ``task.kind`` is in the key.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

from isobench.common.files import format_sorted_json
from isobench.config.removed import restore_removed
from isobench.config.schema import Config, map_chain
from isobench.data import sources, weights
from isobench.tasks.kind import kind_of

PROTOCOL = 3  # raise it when the training loop changes what a config gives, or when the key is made of other parts
# Settings that don't decide a result, or whose effect is in the fingerprints.
NOT_IN_KEY = {
    "task": {"hub", "subset", "revision", "embedded", "folder"},
    "encoder": {"hub", "revision", "embedded", "path", "trust_remote_code"},
    "trainer": {"accelerator", "threads"},
}
KEY_SECTIONS = ("seed", "task", "encoder", "calibration", "head", "optimization", "evaluation", "trainer", "monitors")


@dataclass(frozen=True)
class Identity:
    """``key`` (64 hex digits), and the fingerprints of data and encoder that go into it, by name."""

    key: str
    data: dict[str, str]
    encoder: dict[str, str]

    @property
    def fingerprints(self) -> tuple[dict[str, str], dict[str, str]]:
        return self.data, self.encoder


def identify(cfg: Config) -> Identity:
    """Compute the key of the run that a valid config describes. Reads files' hashes; imports nothing heavy."""
    return Identifier().identify(cfg)


class Identifier:
    """Computes the identities of many runs. What they share (the same objects in their configs) is computed once."""

    def __init__(self) -> None:
        self.results: dict[tuple[Any, ...], Any] = {}  # by function and the ids of its arguments
        self.arguments: list[Any] = []  # kept, because an id is one object's only while that object exists

    def identify(self, cfg: Config) -> Identity:
        data = self._call_once(sources.fingerprint_data, cfg.task, cfg.data)
        encoder = self._call_once(weights.fingerprint_encoder, cfg.encoder)
        key = compute_key(cfg, data, encoder, self._call_once)
        return Identity(key, data, encoder)

    def _call_once(self, function: Callable[..., Any], *arguments: Any) -> Any:
        call = (function, *map(id, arguments))
        if call not in self.results:
            self.results[call] = function(*arguments)
            self.arguments += arguments
        return self.results[call]


def compute_key(
    cfg: Config, data: dict[str, str], encoder: dict[str, str], call: Callable[..., str] = lambda f, *given: f(*given)
) -> str:
    """Compute a run's key from its config and from fingerprints that are known already; reads no file.

    It is the sha256 of JSON with sorted names. ``call`` calls a function, or gives what an equal call gave before.
    """
    texts = {name: call(_format_decisive, name, getattr(cfg, name)) for name in KEY_SECTIONS}
    texts["trainer"] = call(_format_decisive, "trainer", cfg.trainer, choose_dropout(cfg))
    texts |= {"data": call(format_sorted_json, data), "weights": call(format_sorted_json, encoder)}
    texts |= {"seeds": format_sorted_json(resolve_seeds(cfg)), "protocol": format_sorted_json(PROTOCOL)}
    entries = ", ".join(f'"{name}": {texts[name]}' for name in sorted(texts))
    return hashlib.sha256(f"{{{entries}}}".encode()).hexdigest()


def _format_decisive(name: str, section: Any, dropout: str | None = None) -> str:
    decisive = select_decisive(name, section)
    return format_sorted_json(decisive if dropout is None else {**decisive, "dropout": dropout})


def select_decisive(name: str, section: Any) -> Any:
    """Select what decides a result in a section of a config; the section ``seed`` is a number and stays.

    An earlier run's key must stay when isobench changes. So nulls are left out, because optional settings are added
    later; so is a method's class, which may move; and settings that are gone are put back with the value they had.
    """
    if name == "seed":
        return section
    settings = restore_removed(name, to_plain(section))
    if name == "calibration":
        settings = drop_targets_of_chain(settings)
    if name == "monitors":
        settings = {monitor: _drop_target(monitor_settings) for monitor, monitor_settings in settings.items()}
    without = NOT_IN_KEY.get(name, ())
    return {key: value for key, value in settings.items() if value is not None and key not in without}


def drop_targets_of_chain(calibration: dict[str, Any]) -> dict[str, Any]:
    """Copy a ``calibration`` without the ``_target_`` of any of its methods."""
    return map_chain(_drop_target, calibration)


def _drop_target(settings: Any) -> Any:
    if not isinstance(settings, dict):
        return settings
    return {key: value for key, value in settings.items() if key != "_target_"}


def to_plain(section: Any) -> Any:
    """Convert a dataclass of settings to a dictionary, nested ones too; keep any other value.

    Lists and dictionaries in it are not copied, as `dataclasses.asdict` would: don't change them.
    """
    if not is_dataclass(section):
        return section
    return {name: to_plain(value) for name, value in vars(section).items()}


STREAMS = ("init", "order", "dropout")


def resolve_seeds(cfg: Config) -> dict[str, int]:
    """Choose each stream's seed: the one set in ``seeds``, else one derived from ``seed``."""
    chosen = {stream: getattr(cfg.seeds, stream) for stream in STREAMS}
    return {stream: derive_seed(cfg.seed, stream) if value is None else value for stream, value in chosen.items()}


def choose_dropout(cfg: Config) -> str:
    """Return ``torch`` where a run's dropout is torch's on every device, else ``auto``: isobench's own on a CPU.

    Gradient checkpointing restores torch's generator only, before it computes activations again. The models that
    write or predict words mostly call torch's function.
    """
    return "auto" if kind_of(cfg.task).own_dropout and not cfg.encoder.gradient_checkpointing else "torch"


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
