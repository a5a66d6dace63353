"""Load a pretrained encoder with its pooling and pooler, or an encoder-decoder, pretrained or from scratch."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from isobench.common.errors import refuse
from isobench.config.schema import Encoder
from isobench.data import weights
from isobench.data.sentence_settings import describe_own_settings
from isobench.data.word_vectors import open_word_vectors
from isobench.models.attention import find_first_position, restrict_to_first_token
from isobench.models.huggingface_head import find_huggingface_pooling
from isobench.models.layer_forms import add_normformer, register_form
from isobench.models.loading import (
    describe_missing_weights,
    describe_unread_weights,
    enable_gradient_checkpointing,
    handle_loading_errors,
    load_missing_parameters,
    read_max_positions,
    refuse_other_shapes,
)
from isobench.models.sentence_encoder import Pooler, SentenceEncoder
from isobench.models.word_vectors import WordTokenizer, WordVectorEncoder

NO_POOLER_WARNING = "the checkpoint has no pooler: pooler.dense is randomly initialised"


@dataclass
class LoadedEncoder:
    """A pretrained encoder with its pooler.

    ``config``: its transformers config. ``dim``: the width d of its vectors. ``max_positions``: its longest input,
    in tokens. ``dropout``: its hidden dropout. ``init_seed``: the seed of the encoder's weights that the checkpoint
    lacks, None if it lacks none (a pooler does not count). ``warnings``: for the run's record.
    """

    encoder: SentenceEncoder
    pooler: nn.Module
    config: Any
    dim: int
    max_positions: int
    dropout: float
    init_seed: int | None
    warnings: list[str] = field(default_factory=list)


def load_encoder(
    cfg: Encoder,
    cache: str | None,
    seed: int,
    head: str = "isobn",
    all_tokens: bool = False,
    max_length: int | None = None,
) -> LoadedEncoder:
    """Load a pretrained encoder with the pooling that a head wants: ``encoder.pooling``, or transformers' own.

    ``seed`` initialises weights that the checkpoint lacks, which ``warnings`` then name. With ``all_tokens`` batches
    are padded, and every layer computes every token: for readers of several layers. ``max_length``: how many tokens
    of a text will be read at most, if the encoder is to be trained.
    """
    torch.manual_seed(seed)
    if cfg.word_vectors:
        words = WordVectorEncoder(open_word_vectors(cfg, cache)[1])
        dim, longest = words.vectors.shape[1], WordTokenizer.model_max_length
        return LoadedEncoder(words, nn.Identity(), None, dim, longest, dropout=0.0, init_seed=None)
    with handle_loading_errors(cfg) as options:
        from transformers import AutoConfig, AutoModel

        source = weights.resolve_name_or_path(cfg, cache)
        pooling = cfg.pooling
        if head == "huggingface":  # asked before the weights, which may be gigabytes to download
            pooling = find_huggingface_pooling(AutoConfig.from_pretrained(source, **options))
        model, report = AutoModel.from_pretrained(
            source,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refuse_other_shapes then raises an error that names the tensor
            **options,
        )
        refuse_other_shapes(cfg, report["mismatched_keys"])
        missing = {n for n in report["missing_keys"] if pooling == "pooler" or not n.startswith("pooler.")}
        notes = weights.describe_unread_parts(cfg)
        notes += describe_own_settings(cfg, max_length, pools=head == "isobn")
        if cfg.missing_from and missing:
            notes, missing = notes + load_missing_parameters(cfg, model, missing), set()
        elif cfg.missing_from and not report["missing_keys"]:
            notes.append(f"the safetensors weights lack nothing: {cfg.missing_from} was not read")
        notes += describe_unread_weights(report["unexpected_keys"], model)
    return _assemble_encoder(cfg, model, pooling, missing, seed, notes, all_tokens)


def _assemble_encoder(
    cfg: Encoder,
    model: Any,
    pooling: str,
    missing: Collection[str],
    seed: int,
    notes: list[str],
    all_tokens: bool,
) -> LoadedEncoder:
    """Put a transformers model together with its pooling and pooler; ``missing``: parameters that the seed made."""
    whole = model
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    config = model.config
    dim = int(config.hidden_size)
    of_encoder = {id(parameter) for parameter in model.parameters()}  # which calls them by other names than ``whole``
    names = {name for name, parameter in whole.named_parameters() if id(parameter) in of_encoder}
    missing_of_encoder = [name for name in missing if name in names and not name.startswith("pooler.")]
    notes = notes + describe_missing_weights(cfg, missing_of_encoder, whole, model)
    takes_first = pooling in ("pooler", "cls")
    _check_pooling(cfg, config, takes_first)
    pooler: nn.Module = nn.Identity()
    if pooling == "pooler":
        pooler = Pooler(dim)
        if not _copy_or_init_pooler(model, pooler, missing, float(getattr(config, "initializer_range", 0.02))):
            notes.append(NO_POOLER_WARNING)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # our own Pooler replaces it, so that a calibration can be placed before it
    # Both are lossless: a batch is one row without padding; the last layer computes each text's first token alone.
    first_position = None if all_tokens else find_first_position(model)
    first_token_only = not all_tokens and takes_first and cfg.layer is None and restrict_to_first_token(model)
    if cfg.gradient_checkpointing:
        enable_gradient_checkpointing(model)
    return LoadedEncoder(
        SentenceEncoder(model, pooling, cfg.layer, first_token_only, first_position),
        pooler,
        config,
        dim,
        read_max_positions(config),
        _read_dropout(config),
        seed if missing_of_encoder else None,
        notes,
    )


def _check_pooling(cfg: Encoder, config: Any, takes_first: bool) -> None:
    """Raise UserError if the model lacks ``encoder.layer``, or the token that is taken has read no other."""
    is_causal = _is_decoder_only(config.model_type) or getattr(config, "is_decoder", False)
    sees_one = takes_first and not config.is_encoder_decoder and is_causal
    advice = "use encoder.pooling=last or mean"
    layers = int(config.num_hidden_layers)
    has_none = isinstance(cfg.layer, int) and cfg.layer > layers
    refuse(
        (has_none, f"encoder.layer={cfg.layer}: {cfg.name} has layers 0 (the embeddings) to {layers}"),
        (sees_one, f"encoder.pooling={cfg.pooling}: the first token of a decoder sees no other: {advice}"),
    )


def _copy_or_init_pooler(model: nn.Module, pooler: Pooler, missing: Collection[str], std: float) -> bool:
    """Copy the checkpoint's pooler into ``pooler`` and return True; if there is none, initialise it as BERT does."""
    loaded_pooler = getattr(model, "pooler", None)
    is_linear = isinstance(loaded_pooler, nn.Linear)  # as in ALBERT
    dense = loaded_pooler if is_linear else getattr(loaded_pooler, "dense", None)
    if dense is None or any(name.startswith("pooler.") for name in missing):
        nn.init.normal_(pooler.dense.weight, std=std)
        nn.init.zeros_(pooler.dense.bias)
        return False
    pooler.dense.load_state_dict(dense.state_dict())
    return True


def _is_decoder_only(model_type: str) -> bool:
    """True for families that are always causal, such as GPT-2."""
    from transformers.models.auto import modeling_auto as auto

    is_causal = model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return is_causal and model_type not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES


def _read_dropout(config: Any) -> float:
    rates = (getattr(config, name, None) for name in ("hidden_dropout_prob", "dropout", "resid_pdrop"))
    return float(next((rate for rate in rates if rate is not None), 0.1))


@dataclass
class LoadedGenerator:
    """An encoder-decoder, or a causal or masked language model.

    ``dim`` and ``max_positions`` are as in ``LoadedEncoder``, of the states that its output embedding reads.
    """

    model: Any
    dim: int
    max_positions: int
    warnings: list[str] = field(default_factory=list)


class Family(NamedTuple):
    """A family of models that write or predict words: transformers' class, what it is, and examples for errors."""

    auto: str
    words: str
    encoders: str
    types: str


ENCODER_DECODER = Family("AutoModelForSeq2SeqLM", "an encoder-decoder", "bart-scratch, bart-base", "bart, t5, marian")
CAUSAL = Family("AutoModelForCausalLM", "a causal language model", "gpt-scratch, gpt2", "gpt2, opt, llama")
MASKED = Family("AutoModelForMaskedLM", "a masked language model", "bert-scratch, bert-base-uncased", "bert, roberta")
WITH_OTHER_ATTENTION = ("opt", "gpt2", "bert")  # architectures that call the attention of encoder.attention


def load_generator(cfg: Encoder, cache: str | None, seed: int, tokenizer: Any, family: Family) -> LoadedGenerator:
    """Load a model of a family, or make one from ``cfg.scratch`` with the tokenizer's vocabulary."""
    torch.manual_seed(seed)
    with handle_loading_errors(cfg, instead=family.encoders.partition(",")[0]) as options:
        import transformers

        if cfg.scratch:
            config, missing = _make_config(cfg.scratch, _make_token_settings(tokenizer)), set()
        else:
            folder = weights.resolve_name_or_path(cfg, cache)
            config = transformers.AutoConfig.from_pretrained(folder, **options)
        auto = _find_class(cfg, family, config)
        if family is CAUSAL:
            config.is_decoder = True  # else one that can also predict masked tokens, such as BERT, sees the next ones
        if cfg.scratch:
            form = {"attn_implementation": register_form(cfg.attention)} if cfg.attention else {}
            model = auto.from_config(config, **form)
            if cfg.normformer:
                add_normformer(model)
        else:
            model, report = auto.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                use_safetensors=True if cfg.path else None,  # no key is made of the bytes of other weights
                **options,
            )
            refuse_other_shapes(cfg, report["mismatched_keys"])
            missing = set(report["missing_keys"])
    body = getattr(model, model.base_model_prefix, model)
    notes = describe_missing_weights(cfg, missing, model, body)
    if cfg.gradient_checkpointing:
        enable_gradient_checkpointing(model)
    projection = model.get_output_embeddings()
    return LoadedGenerator(model, int(projection.in_features), read_max_positions(model.config), notes)


def check_scratch(cfg: Encoder, family: Family) -> None:
    """Raise UserError if no model can be made of ``cfg.scratch``; one is tried without memory for its tensors."""
    with handle_loading_errors(cfg), torch.device("meta"):
        config = _make_config(cfg.scratch or {}, {})
        _find_class(cfg, family, config).from_config(config)


def _find_class(cfg: Encoder, family: Family, config: Any) -> Any:
    """Return transformers' class for a family; UserError if the config's model does not fit it, or the settings."""
    import transformers

    auto = getattr(transformers, family.auto)
    fits = config.is_encoder_decoder == (family is ENCODER_DECODER) and type(config) in auto._model_mapping
    takes_attention = not cfg.attention or config.model_type in WITH_OTHER_ATTENTION
    takes_norm = not cfg.normformer or (config.model_type == "opt" and config.do_layer_norm_before)
    needed = "encoder.scratch: {model_type: opt, do_layer_norm_before: true}"
    refuse(
        (not fits, f"encoder={cfg.name} is of the type {config.model_type}, and the task needs {family.words}"),
        (not takes_attention, f"encoder.attention={cfg.attention} has no effect on the type {config.model_type}"),
        (not takes_norm, f"encoder.normformer=true needs {needed}"),
    )
    return auto


def _make_config(scratch: dict[str, Any], token_settings: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    defaults = AutoConfig.for_model(scratch["model_type"])
    unknown = [name for name in scratch if not hasattr(defaults, name) or callable(getattr(defaults, name))]
    refuse((unknown, f"encoder.scratch: there is no setting {', '.join(unknown)}"))
    return AutoConfig.for_model(**token_settings | scratch)


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
