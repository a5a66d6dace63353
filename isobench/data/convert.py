"""Convert the DistilBERT encoder in an int8 ONNX graph to a transformers folder.

A weight is (q - zero_point) * scale, with integers q and one scale per tensor: exactly the float32 value that the
ONNX graph itself computes with.
"""

import json
import shutil
from pathlib import Path

import numpy as np

from isobench.common.checksums import print_remaking
from isobench.common.files import explain_disk_errors, sha256_file
from isobench.common.temporaries import make_temporary_folder, remove_abandoned

VERSION = 2
SUMS_FILE = "sums.json"  # in the converted folder: the sha256 of each of its other files
MODEL_CONFIG = {
    "model_type": "distilbert",
    "architectures": ["DistilBertModel"],
    "vocab_size": 28996,
    "dim": 768,
    "hidden_dim": 3072,
    "n_layers": 6,
    "n_heads": 12,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
    "model_max_length": 512,
    "model_input_names": ["input_ids", "attention_mask"],
}


def convert_distilbert(onnx_file: Path, cache: Path) -> Path:
    """Return the folder of the converted encoder inside ``cache``; convert on the first call.

    A folder with a file that is not as it was written is made again, after a line that says so. The folder
    appears whole or not at all, also if several processes convert at the same time.

    Raises:
        OSError: the cache can't be written.
    """
    target = cache / f"distilbert-quire-v{VERSION}"
    if is_converted_folder(target):
        remove_abandoned(cache, target.name)  # of a process that was killed while another one was faster
        return target
    if target.exists():
        print_remaking(target)
    cache.mkdir(parents=True, exist_ok=True)
    with make_temporary_folder(target) as work:
        _write_model_folder(onnx_file, work)
        try:
            if not is_converted_folder(target):  # missing or damaged
                shutil.rmtree(target, ignore_errors=True)
            work.rename(target)
        except OSError:
            if not is_converted_folder(target):  # else another process was faster
                raise
    return target


def is_converted_folder(folder: Path) -> bool:
    """True if a folder holds what was written when the encoder was converted: the same files, the same bytes."""
    try:
        return bool(json.loads((folder / SUMS_FILE).read_text()) == compute_sums(folder))
    except (OSError, ValueError):
        return False


def compute_sums(folder: Path) -> dict[str, str]:
    """Compute the sha256 of each file in a folder except the file of the sums, by name."""
    return {file.name: sha256_file(file) for file in folder.iterdir() if file.name != SUMS_FILE}


def _write_model_folder(onnx_file: Path, folder: Path) -> None:
    from safetensors.numpy import save_file

    weights = read_weights(onnx_file)
    with explain_disk_errors(folder / "model.safetensors"):
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(MODEL_CONFIG, indent=1))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG, indent=1))
    tokenizer = json.loads((onnx_file.parent / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["truncation"] = tokenizer["padding"] = None  # each task sets its own
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / SUMS_FILE).write_text(json.dumps(compute_sums(folder), indent=1))


def read_weights(onnx_file: Path) -> dict[str, np.ndarray]:
    """Read float32 weights from the graph, by their names in transformers' ``DistilBertModel``."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(onnx_file)).graph
    stored = {tensor.name: tensor for tensor in graph.initializer}

    def array(name: str) -> np.ndarray:
        return numpy_helper.to_array(stored[name])

    def dequantise(base: str) -> np.ndarray:
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
    position = "distilbert.embeddings.position_embeddings.weight"
    weights.setdefault(position, dequantise(position))
    prefix = "distilbert."
    return {
        name.removeprefix(prefix): np.ascontiguousarray(value, dtype=np.float32)
        for name, value in weights.items()
        if name.startswith(prefix)
    }
