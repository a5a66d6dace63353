"""A run's identity, folder, lock and record.

A run is what decides its result: its key is the sha256 of the resolved config less everything that
doesn't (paths, tracking, where and how fast it runs), the data's fingerprint and the encoder's.
"""

from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from isobench.common.files import sha256_json
from isobench.config.schema import Config
from isobench.data import sources, weights
from isobench.runs.seeding import resolve_seeds

PROTOCOL = 2  # raise it when the training loop changes what a config gives
# Settings that don't decide a result, or stand in the fingerprints already.
NOT_IN_KEY = {
    "task": {"hub", "subset", "revision", "embedded", "folder"},
    "encoder": {"hub", "revision", "embedded", "path", "trust_remote_code"},
    "trainer": {"accelerator", "threads", "progress_bar"},
}
KEY_SECTIONS = ("seed", "task", "encoder", "calibration", "head", "optimization", "trainer", "monitors")


@dataclass(frozen=True)
class Identity:
    """``key`` (64 hex digits) and the fingerprints that went into it."""

    key: str
    data: dict[str, str]
    encoder: dict[str, str]


def identify(cfg: Config) -> Identity:
    """The key of the run a valid config describes. Reads files' hashes; imports nothing heavy.

    Raises:
        UserError: data or weights that are not there.
    """
    data = sources.fingerprint_data(cfg.task, cfg.data)
    encoder = weights.fingerprint_encoder(cfg.encoder)
    decisive: dict[str, Any] = {section: to_plain(getattr(cfg, section)) for section in KEY_SECTIONS}
    for section, names in NOT_IN_KEY.items():
        decisive[section] = {k: v for k, v in decisive[section].items() if k not in names}
    # A setting that is not set decides nothing: one that is added later leaves the keys of runs as they are.
    decisive = {name: drop_none(section) for name, section in decisive.items()}
    if cfg.task.generation:
        decisive["task"]["generation"] = drop_none(to_plain(cfg.task.generation))
    decisive |= {"seeds": resolve_seeds(cfg), "protocol": PROTOCOL, "data": data, "weights": encoder}
    return Identity(sha256_json(decisive), data, encoder)


def drop_none(section: Any) -> Any:
    """A section without the settings that are null."""
    return {k: v for k, v in section.items() if v is not None} if isinstance(section, dict) else section


def to_plain(section: Any) -> Any:
    """A section of a config as plain values."""
    return asdict(section) if is_dataclass(section) and not isinstance(section, type) else section
