"""Convert the DistilBERT encoder in an int8 ONNX graph to a transformers folder.

A weight is (q - zero_point) * scale, with integers q and one scale per tensor: exactly the float32 value that the
ONNX graph itself computes with.
"""

import json
from pathlib import Path

import numpy as np

from isobench.common.files import explain_disk_errors
from isobench.data.folders import make_checked_folder

VERSION = 2
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

    Raises:
        OSError: the cache can't be written.
    """
    return make_checked_folder(
        cache / f"distilbert-quire-v{VERSION}", lambda folder: _write_model_folder(onnx_file, folder)
    )


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
