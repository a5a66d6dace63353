"""Say whose weights an encoder has: its name does not, where ``encoder.path`` or ``encoder.hub`` was changed."""

import functools
from dataclasses import fields
from pathlib import Path

import yaml

from isobench.common.resources import conf_dir
from isobench.config.schema import Encoder
from isobench.data.weights import find_encoder_source


def describe_weights(encoder: Encoder) -> str:
    """Say in a few words where an encoder's weights come from: its folder, package, or model on the hub."""
    source = find_encoder_source(encoder)
    if source == "hub":
        return f"{encoder.hub}@{str(encoder.revision)[:7]}"
    words = {"scratch": "random initialisation", "path": encoder.path, "embedded": f"package {encoder.embedded}"}
    return str(words[source])


def format_encoder_name(encoder: Encoder) -> str:
    """Return an encoder's name for tables, with whose weights it has if they are not those that the name stands for.

    ``encoder=minilm encoder.path=/models/other`` gives ``minilm (weights of other)``. Names that isobench ships no
    encoder for, and ``local``, which brings no weights, stand for whatever they are given.
    """
    own = read_shipped_encoder(encoder.name)
    if own is None or not (own.hub or own.embedded or own.scratch):
        return encoder.name
    if describe_weights(own) == describe_weights(encoder):
        return encoder.name
    is_folder = find_encoder_source(encoder) == "path"
    return f"{encoder.name} (weights of {Path(str(encoder.path)).name if is_folder else describe_weights(encoder)})"


def label_encoder(encoder: Encoder) -> str:
    """Return an encoder's name, followed by where its weights come from unless isobench ships them under this name.

    Unlike `format_encoder_name`, it also tells apart a user's encoders that share one name: ``local (/models/a)``.
    """
    own = read_shipped_encoder(encoder.name)
    is_own = own is not None and describe_weights(own) == describe_weights(encoder)
    return encoder.name if is_own else f"{encoder.name} ({describe_weights(encoder)})"


@functools.cache
def read_shipped_encoder(name: str) -> Encoder | None:
    """Read the settings of an encoder that isobench ships; None if it ships none of this name."""
    file = Path(conf_dir()) / "encoder" / f"{name}.yaml"
    if not file.is_file():
        return None
    names = {setting.name for setting in fields(Encoder)}
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    return Encoder(**{key: value for key, value in settings.items() if key in names})
