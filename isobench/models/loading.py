"""What loading any transformers model needs: errors of one line, missing weights, settings of its config."""

import contextlib
import io
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from torch import nn

from isobench.common.errors import UserError, extract_first_line
from isobench.config.schema import Encoder
from isobench.data import hub, weights
from isobench.models.attention_masks import keep_masks_on_gpu
from isobench.models.damaged_files import find_damaged_file
from isobench.models.packed_attention import register_packed_attention


@contextlib.contextmanager
def handle_loading_errors(cfg: Encoder, instead: str = "minilm", hint: str = "") -> Iterator[dict[str, Any]]:
    """Turn every error of loading from transformers into a UserError of one line.

    Yields:
        Options for ``from_pretrained``.

    Args:
        cfg: the encoder's settings.
        instead: the encoder that the error suggests if the hub can't be reached.
        hint: what to try, added to errors of other kinds.
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
        reason = extract_first_line(error)
        if isinstance(error, KeyError):
            reason = f"{error} is missing in its JSON files, or transformers does not know it"
        if cfg.path and (problem := find_damaged_file(Path(cfg.path).expanduser())):
            reason = problem
        if not reachable:
            raise weights.make_absence_error(cfg, instead) from error
        if "trust_remote_code" in str(error):
            reason = "it brings its own code; encoder.trust_remote_code=true runs that code, if you trust it"
        raise UserError(f"encoder={cfg.name} can't be loaded: {reason}{hint}") from error


def silence_transformers() -> None:
    """Keep transformers' load reports and bars off the terminal; what matters goes into the run's record."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def describe_missing_weights(cfg: Encoder, missing: Collection[str], model: nn.Module) -> list[str]:
    """Return a warning that names the parameters that the checkpoint lacks, in a list; empty if it lacks none.

    Raises:
        UserError: more than half are missing, so that the weights must be another model's.
    """
    if 2 * len(missing) > len(list(model.parameters())):
        raise UserError(f"encoder={cfg.name}: the weights are another model's: {len(missing)} parameters are missing")
    names = ", ".join(sorted(missing)[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return [f"randomly initialised, not in the checkpoint: {names}"] if missing else []


def refuse_other_shapes(cfg: Encoder, mismatched: Collection[tuple[str, Any, Any]]) -> None:
    """Raise UserError if parameters have other shapes in the file of weights than config.json gives them.

    Args:
        cfg: the encoder's settings.
        mismatched: for each such parameter its name, its shape in the file, and its shape in the model.
    """
    if mismatched:
        name, theirs, ours = sorted(mismatched)[0]
        raise UserError(
            f"encoder={cfg.name}: {name} has shape {list(theirs)} in the weights, but {list(ours)} by config.json: "
            "use the config.json that was saved with these weights"
        )


def enable_gradient_checkpointing(model: Any) -> None:
    """Save memory: keep fewer activations and compute the others again in the backward pass."""
    with warnings.catch_warnings():  # transformers deprecates this name, and 5.0 lacks the new one
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def read_max_positions(config: Any) -> int:
    """Return the model's longest input, in tokens; RoBERTa's family reserves its first positions for padding."""
    positions = getattr(config, "max_position_embeddings", None) or 1 << 20
    offset = (config.pad_token_id or 0) + 1 if "roberta" in config.model_type else 0
    return int(positions) - offset
