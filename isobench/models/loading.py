"""What loading any transformers model needs: errors of one line, missing weights, settings of its config."""

import contextlib
import io
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isobench.common.errors import UserError, doing, extract_first_line, refuse
from isobench.config.schema import Encoder
from isobench.data import hub, weights
from isobench.models.attention import keep_masks_on_gpu, register_packed_attention

MOST_MISSING = 0.05  # share of a model's weights, but for its head, that a checkpoint may lack
NUMBER = re.compile(r"\d+")
COUNTS_FROM_PADDING = (  # model types whose first position comes after that of the padding token
    "roberta", "camembert", "mpnet", "data2vec-text", "ibert", "longformer", "xmod", "luke", "esm", "markuplm",
)  # fmt: skip


@contextlib.contextmanager
def handle_loading_errors(cfg: Encoder, instead: str = "minilm", hint: str = "") -> Iterator[dict[str, Any]]:
    """Turn every error of loading from transformers into a UserError of one line; yields options for
    ``from_pretrained``.

    ``instead``: the encoder that the error suggests if the hub can't be reached. ``hint``: added to other errors.
    """
    on_hub = weights.find_encoder_source(cfg) == "hub"
    reachable = hub.is_reachable() if on_hub else True
    silence_transformers()
    keep_masks_on_gpu()
    register_packed_attention()
    options: dict[str, Any] = {"trust_remote_code": cfg.trust_remote_code}
    if on_hub:
        options["revision"] = cfg.revision
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # else a prompt about remote code waits for ever
            yield options
    except UserError:
        raise
    except Exception as error:  # loading raises many kinds: OSError, ValueError, safetensors' own, ...
        if on_hub:
            hub.raise_if_cache_is_full(error)
        if not reachable:
            raise weights.make_encoder_absence_error(cfg, instead) from error
        raise UserError(f"encoder={cfg.name} can't be loaded: {extract_first_line(error)}{hint}") from error


def silence_transformers() -> None:
    """Keep transformers' load reports and bars off the terminal; what matters goes into the run's record."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def describe_missing_weights(cfg: Encoder, missing: Collection[str], model: nn.Module, body: nn.Module) -> list[str]:
    """Return a warning that names the parameters that the checkpoint lacks, in a list; empty if it lacks none.

    ``missing``: their names in ``model``. ``body``: the part of it without its head.

    Raises:
        UserError: more than ``MOST_MISSING`` of the body, pooler apart, is missing, by parameters or by numbers.
    """
    of_body = {id(parameter) for parameter in body.parameters()}
    sizes = {
        name: parameter.numel()
        for name, parameter in model.named_parameters()
        if id(parameter) in of_body and not name.startswith("pooler.")
    }
    lacking = [sizes[name] for name in missing if name in sizes]
    share = max(sum(lacking) / sum(sizes.values()), len(lacking) / len(sizes))
    names = ", ".join(sorted(missing)[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    refuse((share > MOST_MISSING, f"encoder={cfg.name}: the weights lack {100 * share:.0f}% of the model ({names})"))
    return [f"randomly initialised, not in the checkpoint: {names}"] if missing else []


def describe_unread_weights(unexpected: Collection[str], model: Any) -> list[str]:
    """Return a warning that names weights of further layers that config.json has no place for, in a list."""
    known = {NUMBER.sub("#", name) for name in model.state_dict()}
    prefix = f"{model.base_model_prefix}."
    unread = sorted(name for name in unexpected if NUMBER.sub("#", name.removeprefix(prefix)) in known)
    return [f"not read, as config.json has no place for it: {unread[0]} and {len(unread) - 1} more"] if unread else []


def refuse_other_shapes(cfg: Encoder, mismatched: Collection[tuple[str, Any, Any]]) -> None:
    """Raise UserError if parameters (name, shape in the file, shape by config.json) have other shapes in the file."""
    for name, theirs, ours in sorted(mismatched):
        shapes = f"{list(theirs)} in the weights, but {list(ours)} by config.json"
        refuse((True, f"encoder={cfg.name}: {name} has shape {shapes}"))


@torch.no_grad()
def load_missing_parameters(cfg: Encoder, model: Any, missing: Collection[str]) -> list[str]:
    """Copy parameters that a safetensors file lacks from the file ``encoder.missing_from`` of the same checkpoint.

    RoBERTa's safetensors files have no pooler. We expect the ``pytorch_model.bin`` beside them to have one, as it
    had in 2021 (experiments/isobn/errata.md, 11). Programs that read ``pooler_output`` at that time used that
    pooler.

    ``missing`` names the parameters as the model does; the file may put the model's prefix, such as ``roberta.``,
    before each. Returns a note for the run's record.
    """
    stored = _read_parameters(cfg)
    for name in sorted(missing):
        value = stored.get(name, stored.get(f"{model.base_model_prefix}.{name}"))
        parameter = model.get_parameter(name)
        fits = isinstance(value, Tensor) and value.is_floating_point() and value.shape == parameter.shape
        wanted = f"{tuple(parameter.shape)} finite floats named {name}"
        refuse((not fits or not value.isfinite().all(), f"encoder.missing_from: the file has no {wanted}"))
        parameter.copy_(value)
    return [f"not in the safetensors weights, so loaded from {cfg.missing_from}: {', '.join(sorted(missing))}"]


def _read_parameters(cfg: Encoder) -> Mapping[str, Any]:
    """Read the file of ``encoder.missing_from`` as data only: no code in a pickled checkpoint is run."""
    with doing(f"encoder.missing_from={cfg.missing_from}"):
        if weights.find_encoder_source(cfg) == "path":
            file = weights.require_missing_from_file(cfg)
        else:
            import huggingface_hub

            file = Path(huggingface_hub.hf_hub_download(str(cfg.hub), str(cfg.missing_from), revision=cfg.revision))
        stored: Mapping[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        stored.items()  # parameters by name
    return stored


def enable_gradient_checkpointing(model: Any) -> None:
    """Save memory: keep fewer activations and compute the others again in the backward pass."""
    with warnings.catch_warnings():  # transformers deprecates this name, and 5.0 lacks the new one
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def read_max_positions(config: Any) -> int:
    """Return the model's longest input, in tokens; some families reserve their first positions for padding."""
    positions = getattr(config, "max_position_embeddings", None) or 0
    positions = positions if positions > 0 else 1 << 20  # XLNet's is -1
    offset = (config.pad_token_id or 0) + 1 if any(name in config.model_type for name in COUNTS_FROM_PADDING) else 0
    return int(positions) - offset
