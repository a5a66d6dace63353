"""A run's identity: the key under which its result is kept, and the fingerprints that go into it.

The key is the sha256 of everything that decides the result: the settings in ``KEY_SECTIONS``, the three seeds, the
fingerprints of the data and the pretrained weights, and ``PROTOCOL``. Paths, tracking, and where and how fast the run
is carried out are left out, so that the same run has the same key on every machine.

A method is identified by its ``name`` and ``version``, a monitor by its name in ``monitors``, and both by their
settings. ``_target_``, the class that carries them out, is left out: a class may move without making its results
another run's. So a class that computes something else needs another name, or a higher ``version``.
"""

from dataclasses import dataclass, is_dataclass
from typing import Any

from isobench.common.files import sha256_json
from isobench.config.schema import Config
from isobench.data import sources, weights
from isobench.runs.seeding import choose_dropout, resolve_seeds

PROTOCOL = 3  # raise it when the training loop changes what a config gives, or when the key is made of other parts
# Settings that don't decide a result, or whose effect is in the fingerprints.
NOT_IN_KEY = {
    "task": {"hub", "subset", "revision", "embedded", "folder"},
    "encoder": {"hub", "revision", "embedded", "path", "trust_remote_code"},
    "trainer": {"accelerator", "threads", "progress_bar"},
}
KEY_SECTIONS = ("seed", "task", "encoder", "calibration", "head", "optimization", "evaluation", "trainer", "monitors")


@dataclass(frozen=True)
class Identity:
    """``key`` (64 hex digits), and the fingerprints of data and encoder that go into it, by name."""

    key: str
    data: dict[str, str]
    encoder: dict[str, str]


def identify(cfg: Config) -> Identity:
    """Compute the key of the run that a valid config describes. Reads files' hashes; imports nothing heavy.

    Raises:
        UserError: the data or the weights are missing.
    """
    data = sources.fingerprint_data(cfg.task, cfg.data)
    encoder = weights.fingerprint_encoder(cfg.encoder)
    decisive: dict[str, Any] = {section: to_plain(getattr(cfg, section)) for section in KEY_SECTIONS}
    for section, names in NOT_IN_KEY.items():
        decisive[section] = {k: v for k, v in decisive[section].items() if k not in names}
    decisive["trainer"]["dropout"] = choose_dropout(cfg)
    decisive["calibration"] = drop_targets_of_chain(cfg.calibration)
    decisive["monitors"] = {name: drop_target(settings) for name, settings in cfg.monitors.items()}
    # Without nulls, an optional setting that is added later leaves the keys of earlier runs as they are.
    decisive = {name: drop_none(section) for name, section in decisive.items()}
    if cfg.task.generation:
        decisive["task"]["generation"] = drop_none(to_plain(cfg.task.generation))
    decisive |= {"seeds": resolve_seeds(cfg), "protocol": PROTOCOL, "data": data, "weights": encoder}
    return Identity(sha256_json(decisive), data, encoder)


def drop_targets_of_chain(calibration: dict[str, Any]) -> dict[str, Any]:
    """Copy a ``calibration`` without the ``_target_`` of any of its methods."""
    method: dict[str, Any] = drop_target(calibration)
    if method.get("then"):
        method["then"] = drop_targets_of_chain(method["then"])
    return method


def drop_target(settings: Any) -> Any:
    """Copy a method's or a monitor's settings without its ``_target_``; a value that is no mapping is kept."""
    return {k: v for k, v in settings.items() if k != "_target_"} if isinstance(settings, dict) else settings


def drop_none(section: Any) -> Any:
    """Copy a section without its nulls; a value that is no mapping is kept."""
    return {k: v for k, v in section.items() if v is not None} if isinstance(section, dict) else section


def to_plain(section: Any) -> Any:
    """Convert a dataclass of settings to a dictionary, nested ones too; keep any other value.

    Lists and dictionaries in it are not copied, as `dataclasses.asdict` would: don't change them.
    """
    if not is_dataclass(section):
        return section
    return {name: to_plain(value) for name, value in vars(section).items()}
