"""A pretrained encoder, its pooling, and its tokenizer."""

import contextlib
import io
import json
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from isobench.common.errors import UserError, extract_first_line, suggest_nearest
from isobench.common.files import sha256_json
from isobench.common.packages import find_package_folder
from isobench.config.schema import POOLINGS, Encoder
from isobench.data import hub, weights
from isobench.models.last_layer import restrict_to_first_token

NO_POOLER_WARNING = "the checkpoint has no pooler: pooler.dense is randomly initialised"


class SentenceEncoder(nn.Module):
    """Token ids to one vector a sentence, before any pooler.

    Args:
        model: a transformers encoder or decoder without its pooler.
        pooling: ``pooler`` and ``cls`` take the first token, ``mean`` averages, ``last`` takes the last token.
        layer: whose output is pooled, 0 the embeddings', 1 the first layer's, ...; None is the model's output.
    """

    def __init__(self, model: nn.Module, pooling: str, layer: int | None = None) -> None:
        super().__init__()
        self.model, self.pooling, self.layer = model, pooling, layer

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **arguments: Tensor) -> Tensor:
        """[b, T] -> [b, d]."""
        if self.layer is None:
            output = self.model(input_ids=input_ids, attention_mask=attention_mask, **arguments)
            hidden = output.last_hidden_state  # (b, T, d)
        else:
            output = self.model(
                input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, **arguments
            )
            hidden = output.hidden_states[self.layer]  # (b, T, d)
        if self.pooling in ("pooler", "cls"):
            return hidden[:, 0]
        if self.pooling == "mean":
            mask = attention_mask[:, :, None].to(hidden.dtype)
            return (hidden * mask).sum(1) / mask.sum(1)
        last = attention_mask.sum(1) - 1
        return hidden[torch.arange(len(hidden), device=hidden.device), last]

    def vocabulary(self) -> Tensor:
        """The input embedding matrix, [V, d]."""
        return self.model.get_input_embeddings().weight  # type: ignore[operator]


class Pooler(nn.Module):
    """BERT's pooler: dense and tanh, [B, d] -> [B, d]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> [B, d]."""
        return torch.tanh(self.dense(h))


@dataclass
class LoadedEncoder:
    """What ``load`` returns; ``warnings`` belong in the run's result."""

    encoder: SentenceEncoder
    pooler: nn.Module
    dim: int
    positions: int
    dropout: float
    seed: int | None  # that decided the encoder's weights which the checkpoint lacks; None if it lacks none
    warnings: list[str] = field(default_factory=list)


def load_encoder(cfg: Encoder, cache: str | None, seed: int) -> LoadedEncoder:
    """Load a pretrained encoder; whatever the checkpoint lacks is initialised from ``seed`` and said.

    Raises:
        UserError: no such pooling, weights that can't be loaded, or a hub that can't be reached.
    """
    if cfg.pooling not in POOLINGS:
        raise UserError(f"encoder.pooling={cfg.pooling} is not known: {suggest_nearest(cfg.pooling, POOLINGS)}")
    torch.manual_seed(seed)
    with handle_loading_errors(cfg) as (where, options):
        from transformers import AutoModel

        model, report = AutoModel.from_pretrained(
            where or weights.resolve_name_or_path(cfg, cache),
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    config = model.config
    dim = int(config.hidden_size)
    layers = int(config.num_hidden_layers)
    if cfg.layer is not None and not 0 <= cfg.layer <= layers:
        raise UserError(f"encoder.layer={cfg.layer}: {cfg.name} has layers 0 (the embeddings) to {layers}")
    missing = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    notes = describe_missing_weights(cfg, missing, model)
    if cfg.pooling in ("pooler", "cls") and not config.is_encoder_decoder and _is_decoder_only(config.model_type):
        raise UserError(
            f"encoder.pooling={cfg.pooling} reads the first token, which sees no other in a decoder such as "
            f"{config.model_type}: use encoder.pooling=last or mean"
        )
    pooler: nn.Module = nn.Identity()
    if cfg.pooling == "pooler":
        pooler = Pooler(dim)
        if not _copy_or_init_pooler(
            model, pooler, report["missing_keys"], float(getattr(config, "initializer_range", 0.02))
        ):
            notes.append(NO_POOLER_WARNING)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # ours does its work, so that a calibration can stand before it
    if cfg.first_token_only and cfg.pooling in ("pooler", "cls") and cfg.layer is None:
        restrict_to_first_token(model)
    if cfg.gradient_checkpointing:
        enable_gradient_checkpointing(model)
    if cfg.compile:
        model.compile(dynamic=True)
    drawn = seed if missing else None
    return LoadedEncoder(
        SentenceEncoder(model, cfg.pooling, cfg.layer),
        pooler,
        dim,
        read_max_positions(config),
        _read_dropout(config),
        drawn,
        notes,
    )


def describe_missing_weights(cfg: Encoder, missing: Collection[str], model: nn.Module) -> list[str]:
    """What to say of parameters that a checkpoint lacks, if it lacks any.

    Raises:
        UserError: it lacks most of them.
    """
    if 2 * len(missing) > len(list(model.parameters())):
        raise UserError(
            f"encoder={cfg.name}: the weights are not this model's; {len(missing)} parameters are missing"
        )
    names = ", ".join(sorted(missing)[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return [f"randomly initialised, not in the checkpoint: {names}"] if missing else []


def enable_gradient_checkpointing(model: Any) -> None:
    """Keep fewer activations, compute the others again in the backward pass."""
    with warnings.catch_warnings():  # renamed in transformers 5, under a name that 5.0 lacks
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def load_tokenizer(cfg: Encoder, cache: str | None, instead: str = "minilm") -> Any:
    """The encoder's tokenizer, with a padding token (GPT-2 has none: its end token, always masked)."""
    with handle_loading_errors(cfg, instead) as (where, options):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(where or weights.resolve_name_or_path(cfg, cache), **options)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    return tokenizer


def fingerprint_tokenizer(tokenizer: Any) -> str:
    """sha256 of what decides a tokenizer's output: its serialised pipeline, or its vocabulary and class.

    Truncation and padding are left out: every call sets them, and they stay set in the object.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    pipeline = json.loads(backend.to_str()) if backend is not None else tokenizer.get_vocab()
    pipeline |= {"truncation": None, "padding": None}
    return sha256_json([type(tokenizer).__name__, tokenizer.truncation_side, pipeline])


@contextlib.contextmanager
def handle_loading_errors(cfg: Encoder, instead: str = "minilm") -> Iterator[tuple[str, dict[str, Any]]]:
    """Options for ``from_pretrained``; its many exceptions become one line, which may name another encoder."""
    on_hub = weights.find_encoder_source(cfg) == "hub"
    there = hub.is_reachable() if on_hub else True
    silence_transformers()
    options: dict[str, Any] = {"trust_remote_code": cfg.trust_remote_code}
    if on_hub:
        options["revision"] = cfg.revision
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # a prompt about remote code would wait for ever
            yield (str(cfg.hub) if on_hub else ""), options
    except UserError:
        raise
    except Exception as error:  # loading raises many kinds: OSError, ValueError, safetensors' own, ...
        reason = extract_first_line(error)
        if not there:
            raise UserError(
                f"encoder={cfg.name}: the hub can't be reached and {cfg.hub} is not in its cache; set "
                f"encoder.path=FOLDER to its files, or use scale=embedded encoder={instead}"
            ) from error
        if "trust_remote_code" in str(error):
            reason = "it brings code of its own; encoder.trust_remote_code=true runs it, if you trust it"
        elif find_package_folder("sentencepiece") is None:  # transformers then gives misleading reasons
            reason += "; if its tokenizer is made with SentencePiece, pip install 'isobench[generation]'"
        raise UserError(f"encoder={cfg.name} can't be loaded: {reason}") from error


def silence_transformers() -> None:
    """Keep transformers' load reports and bars off the terminal: what matters goes into the result."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _copy_or_init_pooler(model: nn.Module, pooler: Pooler, missing: set[str], std: float) -> bool:
    """Copy the checkpoint's pooler, if it has one; else initialise as BERT does. True if it was there."""
    theirs = getattr(model, "pooler", None)
    dense = theirs if isinstance(theirs, nn.Linear) else getattr(theirs, "dense", None)  # ALBERT's is a Linear
    if dense is None or any(name.startswith("pooler.") for name in missing):
        nn.init.normal_(pooler.dense.weight, std=std)
        nn.init.zeros_(pooler.dense.bias)
        return False
    pooler.dense.load_state_dict(dense.state_dict())
    return True


def _is_decoder_only(model_type: str) -> bool:
    """True for families that are only ever causal, such as GPT-2."""
    from transformers.models.auto import modeling_auto as auto

    return (
        model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and model_type not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    )


def read_max_positions(config: Any) -> int:
    """How many tokens the model takes; RoBERTa's family keeps its first positions for padding."""
    positions = getattr(config, "max_position_embeddings", None) or 1 << 20
    offset = (config.pad_token_id or 0) + 1 if "roberta" in config.model_type else 0
    return int(positions) - offset


def _read_dropout(config: Any) -> float:
    """The encoder's hidden dropout, under the name its family uses."""
    for name in ("hidden_dropout_prob", "dropout", "resid_pdrop"):
        value = getattr(config, name, None)
        if value is not None:
            return float(value)
    return 0.1
