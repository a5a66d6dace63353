"""Find an encoder's files (on the hub, in a folder or in a package), fingerprint them, and name their source.

This module imports nothing heavy, because runs are keyed before torch is imported.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson

from isobench.common.errors import UserError, doing, refuse
from isobench.common.files import (
    cache_dir,
    explain_cache_errors,
    read_bounded,
    read_json,
    sha256_file,
)
from isobench.config.schema import Encoder
from isobench.data import hub
from isobench.data.packaged import encoders
from isobench.papers.folders import find_config, read_config_file

# The files of a folder that decide what its encoder computes.
FINGERPRINTED_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.spm", "*.bpe", "*.codes", "*.py")
WIDTHS = ("hidden_size", "d_model", "dim", "n_embd")  # a width's names in configs of transformers
EXPORT_FILE = "isobench.json"  # in an exported model's folder: what it is, and what transformers can't load of it
ADD_TOKENIZER = "put its tokenizer's files there, with tokenizer.save_pretrained(FOLDER)"


def find_encoder_source(encoder: Encoder) -> str:
    """Return where the encoder comes from: ``scratch``, ``path``, ``embedded`` (a package) or ``hub``.

    ``scratch`` is a model without pretrained weights; ``encoder.path`` then gives its tokenizer only.
    """
    if encoder.scratch:
        return "scratch"
    if encoder.path:
        return "path"
    return "embedded" if encoder.embedded else "hub"


def make_encoder_absence_error(encoder: Encoder, instead: str) -> UserError:
    """Make the error for an encoder of the hub that can't be had; ``instead``: the encoder that it suggests."""
    advice = f"set encoder.path=FOLDER to its files, or use scale=embedded encoder={instead}"
    return hub.make_absence_error(f"encoder={encoder.name}", str(encoder.hub), advice)


def fingerprint_encoder(encoder: Encoder) -> dict[str, str]:
    """Identify the encoder's files, for run keys: by their hashes, the package's hash, or the hub's revision."""
    if encoder.word_vectors:
        file = find_word_vectors(encoder)
        return {"word_vectors" if encoder.path else "package": sha256_file(file)}
    source = find_encoder_source(encoder)
    if source == "hub":
        source_name = {"hub": f"{encoder.hub}@{encoder.revision}"}  # the commit fixes the bytes of all its files
        return source_name | ({"missing_from": encoder.missing_from} if encoder.missing_from else {})
    if source == "embedded":
        return {"package": encoders.fingerprint_package(encoder)}
    if source == "scratch" and not encoder.path:
        return {"scratch": "randomly initialised, the tokenizer learned from the training set"}
    folder = _require_encoder_folder(encoder)
    files = {file for pattern in FINGERPRINTED_FILES for file in folder.glob(pattern) if file.name != EXPORT_FILE}
    digests = {file.name: sha256_file(file) for file in sorted(files)}
    if about := _read_export(folder):
        _require_exported_files(folder, digests, about["sha256"])
    if encoder.missing_from:
        digests[encoder.missing_from] = sha256_file(require_missing_from_file(encoder))
    return digests


def _require_exported_files(folder: Path, digests: dict[str, str], exported: dict[str, str]) -> None:
    """Raise UserError if an exported model's folder lacks a file, or has another or a changed one that is read."""
    for name in sorted(digests.keys() | exported.keys()):
        found = digests.get(name) or (sha256_file(folder / name) if (folder / name).is_file() else None)
        if found != exported.get(name):
            fault = "is missing" if found is None else "was changed, or came after the export"
            raise UserError(
                f"encoder.path: {folder / name} {fault} (by the sha256 in {EXPORT_FILE}): copy the exported folder "
                f"again, or remove {EXPORT_FILE} to use it as it is"
            )


def find_word_vectors(encoder: Encoder) -> Path:
    """Return the file with the vectors of an encoder of word vectors; UserError if it has none, or wants layers."""
    needed = "word vectors have encoder.pooling=mean and encoder.layer=null alone"
    refuse((encoder.layer is not None or encoder.pooling != "mean", f"encoder={encoder.name}: {needed}"))
    if encoder.path:
        return Path(encoder.path).expanduser()
    if encoder.embedded != "glove":
        raise UserError(f"encoder={encoder.name}: set encoder.path=FILE, of word vectors")
    return encoders.find_packaged_weights(encoder)


def read_model_type(encoder: Encoder) -> str | None:
    """Return the architecture (transformers' ``model_type``) of the folder ``encoder.path``, None if not known."""
    model_type = _read_config(encoder).get("model_type") if encoder.path else None
    return model_type if isinstance(model_type, str) else None


def read_width(encoder: Encoder) -> int | None:
    """Return the width of the vectors of an encoder in a folder or a package, None if not known."""
    config = _read_config(encoder)
    return next((width for name in WIDTHS if isinstance(width := config.get(name), int)), None)


def _read_config(encoder: Encoder) -> dict[str, Any]:
    """Read the transformers config of an encoder in a folder or a package; empty if there is none."""
    source = find_encoder_source(encoder)
    if source == "embedded" and encoder.embedded in encoders.CONFIGS:
        return encoders.CONFIGS[encoder.embedded]
    if source not in ("path", "embedded") or encoder.word_vectors:
        return {}
    try:
        folder = find_encoder_folder(encoder) if encoder.path else encoders.find_packaged_weights(encoder).parent
        config = orjson.loads(read_bounded(folder / "config.json"))
    except (OSError, ValueError):
        return {}  # fingerprinting or loading says what is wrong
    return config if isinstance(config, dict) else {}


def find_encoder_folder(encoder: Encoder) -> Path:
    """Return the folder ``encoder.path``, or the only model that ``checkpoint.export`` wrote into it.

    Raises:
        UserError: there are several.
    """
    folder = Path(str(encoder.path)).expanduser()
    has_own = any(file for pattern in ("config.json", "tokenizer*") for file in folder.glob(pattern))
    exports = [] if has_own else sorted(folder.glob(f"[!.]*/{EXPORT_FILE}"))
    if len(exports) > 1:
        raise UserError(
            f"encoder.path: {folder} holds {len(exports)} models: name one, such as {exports[0].parent}; its "
            f"{EXPORT_FILE} says which run it is of"
        )
    return exports[0].parent if exports else folder


def describe_unread_parts(encoder: Encoder) -> list[str]:
    """Say which parts of an exported model ``encoder.path`` does not bring: a head of its own, a calibration."""
    if not encoder.path:
        return []
    lacks = _read_export(find_encoder_folder(encoder)).get("lacks")
    return [f"encoder.path: not read from the exported model: {', '.join(lacks)}"] if lacks else []


def _read_export(folder: Path) -> dict[str, Any]:
    """Read ``isobench.json`` of an exported model's folder; empty if there is none."""
    file = folder / EXPORT_FILE
    with doing(f"encoder.path: {file}"):
        return read_json(file) if file.exists() else {}


def _require_encoder_folder(encoder: Encoder) -> Path:
    folder = find_encoder_folder(encoder)
    # Else its files would have no fingerprint, and its name would be looked for on the hub.
    refuse((not folder.is_dir(), f"encoder.path: {folder} is no folder"))
    if encoder.scratch and (folder / EXPORT_FILE).exists():
        raise UserError(
            f"encoder.path: {folder} is a run's model, and encoder={encoder.name} starts from nothing: encoder=local "
            "trains on with it"
        )
    return folder


def require_missing_from_file(encoder: Encoder) -> Path:
    """Return the path of ``encoder.missing_from`` in the folder ``encoder.path``."""
    return _require_encoder_folder(encoder) / str(encoder.missing_from)


def resolve_name_or_path(encoder: Encoder, cache: str | None) -> str:
    """Return what ``from_pretrained`` takes: a folder, or a name on the hub (pass ``encoder.revision`` with it).

    Packages that hold no transformers folder are converted to one in the cache. An encoder from scratch must have a
    ``path``.
    """
    source = find_encoder_source(encoder)
    if source == "hub":
        return str(encoder.hub)
    if source in ("path", "scratch"):
        return str(_require_encoder_folder(encoder))
    with explain_cache_errors(cache_dir(cache)):
        return str(encoders.make_package_folder(encoder, cache_dir(cache) / "encoders"))


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
    shipped = _read_shipped_encoder(encoder.name)
    brings = shipped and (shipped.hub or shipped.embedded or shipped.scratch)
    if not shipped or not brings or describe_weights(shipped) == describe_weights(encoder):
        return encoder.name
    is_folder = find_encoder_source(encoder) == "path"
    return f"{encoder.name} (weights of {Path(str(encoder.path)).name if is_folder else describe_weights(encoder)})"


def label_encoder(encoder: Encoder) -> str:
    """Return an encoder's name, followed by where its weights come from unless isobench ships them under this name.

    Unlike `format_encoder_name`, it also tells apart a user's encoders that share one name: ``local (/models/a)``.
    """
    shipped = _read_shipped_encoder(encoder.name)
    is_shipped = shipped is not None and describe_weights(shipped) == describe_weights(encoder)
    return encoder.name if is_shipped else f"{encoder.name} ({describe_weights(encoder)})"


def _read_shipped_encoder(name: str) -> Encoder | None:
    file = find_config("encoder", name)
    names = {setting.name for setting in fields(Encoder)}
    return Encoder(**{key: value for key, value in read_config_file(file).items() if key in names}) if file else None
