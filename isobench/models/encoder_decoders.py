"""Load an encoder-decoder for translation or summarisation, pretrained or from scratch."""

from dataclasses import dataclass, field
from typing import Any

import torch

from isobench.common.errors import UserError, suggest_nearest
from isobench.config.schema import Encoder
from isobench.data import weights
from isobench.models.loading import (
    describe_missing_weights,
    enable_gradient_checkpointing,
    handle_loading_errors,
    read_max_positions,
    refuse_other_shapes,
)
from isobench.models.tokenization import OFFLINE_ENCODER_DECODER


@dataclass
class LoadedEncoderDecoder:
    """An encoder-decoder.

    ``dim``: the width of the decoder's states, which the output projection reads. ``max_positions``: its longest
    input, in tokens. ``warnings``: for the run's record.
    """

    model: Any
    dim: int
    max_positions: int
    warnings: list[str] = field(default_factory=list)


def load_encoder_decoder(cfg: Encoder, cache: str | None, seed: int, tokenizer: Any) -> LoadedEncoderDecoder:
    """Load an ``AutoModelForSeq2SeqLM``, or make one from ``cfg.scratch``, whose vocabulary the tokenizer decides.

    ``seed`` initialises weights that the checkpoint lacks, which ``warnings`` then name.
    """
    torch.manual_seed(seed)
    with handle_loading_errors(cfg, OFFLINE_ENCODER_DECODER) as options:
        from transformers import AutoConfig, AutoModelForSeq2SeqLM

        if cfg.scratch:
            _check_scratch_settings(cfg.scratch)
            settings = {**_make_token_settings(tokenizer), **cfg.scratch}
            model, missing = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**settings)), set()
        else:
            folder = weights.resolve_name_or_path(cfg, cache)
            config = AutoConfig.from_pretrained(folder, **options)
            if not config.is_encoder_decoder:
                raise UserError(
                    f"encoder={cfg.name} is a {config.model_type}, and task.generation needs an encoder-decoder: "
                    "choose encoder=bart-scratch, bart-base or another"
                )
            model, report = AutoModelForSeq2SeqLM.from_pretrained(
                folder, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True, **options
            )
            refuse_other_shapes(cfg, report["mismatched_keys"])
            missing = set(report["missing_keys"])
    notes = describe_missing_weights(cfg, missing, model)
    words = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > words:
        raise UserError(
            f"encoder={cfg.name}: the tokenizer has {len(tokenizer):,} words, but the model only {words:,}; "
            "use the model's own tokenizer"
        )
    if cfg.gradient_checkpointing:
        enable_gradient_checkpointing(model)
    projection = model.get_output_embeddings()
    if not isinstance(projection, torch.nn.Linear):
        raise UserError(
            f"encoder={cfg.name}: a {model.config.model_type} has no output projection to calibrate; "
            "choose another encoder"
        )
    return LoadedEncoderDecoder(model, int(projection.in_features), read_max_positions(model.config), notes)


def _check_scratch_settings(scratch: dict[str, Any]) -> None:
    """Raise UserError for a ``model_type`` that is no encoder-decoder, or a setting that its config doesn't have."""
    from transformers import AutoConfig

    if "model_type" not in scratch:
        raise UserError("encoder.scratch.model_type must be set: bart, t5, marian, ...")
    defaults = AutoConfig.for_model(scratch["model_type"])
    if not defaults.is_encoder_decoder:
        kind = defaults.model_type
        raise UserError(f"encoder.scratch.model_type={kind} is no encoder-decoder: choose bart, t5, marian, ...")
    for name in scratch:
        if not hasattr(defaults, name):
            raise UserError(f"encoder.scratch.{name} is not known: {suggest_nearest(name, defaults.to_dict())}")


def _make_token_settings(tokenizer: Any) -> dict[str, Any]:
    """Return the config settings that a tokenizer decides; decoding starts with the end token, as in BART."""
    bos = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id
    return {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": bos,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.eos_token_id,
        "forced_eos_token_id": tokenizer.eos_token_id,
    }
