"""Load the parameters that an encoder's safetensors file lacks from another file of the same checkpoint.

RoBERTa's safetensors files have no pooler. We expect the ``pytorch_model.bin`` beside them to have one, as it had in
2021 (experiments/isobn/errata.md, 11). Programs that read ``pooler_output`` at that time used that pooler.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isobench.common.errors import UserError, extract_first_line
from isobench.config.schema import Encoder
from isobench.data import weights

WITHOUT_FILE = "set encoder.missing_from=null (random values instead) or encoder.pooling=cls (no pooler is read)"


@torch.no_grad()
def load_missing_parameters(cfg: Encoder, model: Any, missing: Collection[str]) -> list[str]:
    """Copy parameters from the file ``encoder.missing_from`` into a model, and nothing else.

    Args:
        cfg: the encoder's settings.
        model: the transformers model, changed in place.
        missing: names of the parameters to copy, as the model names them. The file may put the model's prefix, such
            as ``roberta.``, before each.

    Returns:
        A note for the run's record that names the file and the parameters.

    Raises:
        UserError: the file can't be found or read, lacks a parameter, or has one of another shape or with values
            other than finite floats.
    """
    setting = f"encoder.missing_from={cfg.missing_from}"
    stored = read_parameters(find_file(cfg), setting)
    for name in sorted(missing):
        value = stored.get(name, stored.get(f"{model.base_model_prefix}.{name}"))
        parameter = model.get_parameter(name)
        if value is None:
            raise UserError(f"{setting}: the file has no {name} either; {WITHOUT_FILE}")
        if not isinstance(value, Tensor) or value.shape != parameter.shape:
            raise UserError(
                f"{setting}: {name} is not {tuple(parameter.shape)}, so the file is another model's; replace it by "
                f"this model's, or {WITHOUT_FILE}"
            )
        if not (value.is_floating_point() and value.isfinite().all()):
            raise UserError(
                f"{setting}: {name} has values other than finite floats, so the file is damaged; download it again, "
                f"or {WITHOUT_FILE}"
            )
        parameter.copy_(value)
    return [f"not in the safetensors weights, so loaded from {cfg.missing_from}: {', '.join(sorted(missing))}"]


def find_file(cfg: Encoder) -> Path:
    """Return the path of ``encoder.missing_from``, in the encoder's folder or downloaded from its hub's commit.

    Raises:
        UserError: the folder or the hub does not have it, or the hub can't be reached.
    """
    if weights.find_encoder_source(cfg) == "path":
        return weights.require_missing_from_file(cfg)
    import huggingface_hub

    try:
        return Path(huggingface_hub.hf_hub_download(str(cfg.hub), str(cfg.missing_from), revision=cfg.revision))
    except Exception as error:  # the client raises many kinds
        raise UserError(
            f"encoder.missing_from: {cfg.missing_from} of {cfg.hub} is not in the hub's cache and did not download "
            f"({extract_first_line(error)}); set encoder.path=FOLDER to the model's files, or encoder.pooling=cls"
        ) from error


def read_parameters(file: Path, setting: str) -> Mapping[str, Any]:
    """Read a pickled checkpoint as data only: no code in it is run.

    Args:
        file: its path.
        setting: begins the error message.

    Raises:
        UserError: the file is damaged, or holds anything but parameters by name.
    """
    try:
        stored = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds
        raise UserError(  # without torch's own text, which recommends to run the code in the file
            f"{setting}: the file can't be read, is damaged or holds more than tensors; download it again, or "
            f"{WITHOUT_FILE}"
        ) from error
    if not isinstance(stored, Mapping):
        kind = type(stored).__name__
        raise UserError(
            f"{setting}: the file holds no parameters by name, but {kind}; download it again, or {WITHOUT_FILE}"
        )
    return stored
