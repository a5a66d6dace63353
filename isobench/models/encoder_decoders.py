"""An encoder-decoder for translation or summarisation, and its tokenizer: pretrained, or from scratch."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from isobench.common.errors import UserError, suggest_nearest
from isobench.common.files import cache_dir, sha256_json, shorten_digest, write_cached
from isobench.config.schema import Config, Encoder
from isobench.data import pairs, weights
from isobench.models import encoders
from isobench.runs.identity import Identity

OFFLINE_ENCODER = "bart-scratch"  # needs no hub
VERSION = 1  # of learned tokenizers; part of their files' name
SPECIAL_TOKENS = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}  # ids 0 to 3


@dataclass
class LoadedEncoderDecoder:
    """What ``load`` returns; ``warnings`` belong in the run's result. ``dim``: of what is given to the output."""

    model: Any
    dim: int
    positions: int
    warnings: list[str] = field(default_factory=list)


def load_encoder_decoder(cfg: Encoder, cache: str | None, seed: int, tokenizer: Any) -> LoadedEncoderDecoder:
    """An ``AutoModelForSeq2SeqLM``; whatever a checkpoint lacks is initialised from ``seed`` and said.

    Raises:
        UserError: no encoder-decoder, weights that can't be loaded, or a hub that can't be reached.
    """
    torch.manual_seed(seed)
    with encoders.handle_loading_errors(cfg, OFFLINE_ENCODER) as (where, options):
        from transformers import AutoConfig, AutoModelForSeq2SeqLM

        if cfg.scratch:
            check_scratch_settings(cfg.scratch)
            settings = {**make_token_settings(tokenizer), **cfg.scratch}
            model, missing = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**settings)), set()
        else:
            folder = where or weights.resolve_name_or_path(cfg, cache)
            require_encoder_decoder(cfg, AutoConfig.from_pretrained(folder, **options))
            model, report = AutoModelForSeq2SeqLM.from_pretrained(
                folder, dtype=torch.float32, output_loading_info=True, **options
            )
            missing = set(report["missing_keys"])
    notes = encoders.describe_missing_weights(cfg, missing, model)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        words = model.get_input_embeddings().num_embeddings
        raise UserError(f"encoder={cfg.name}: the tokenizer has {len(tokenizer):,} words, the model {words:,}")
    if cfg.gradient_checkpointing:
        encoders.enable_gradient_checkpointing(model)
    projection = model.get_output_embeddings()
    if not isinstance(projection, torch.nn.Linear):
        raise UserError(f"encoder={cfg.name}: a {model.config.model_type} has no output projection to calibrate")
    return LoadedEncoderDecoder(model, int(projection.in_features), encoders.read_max_positions(model.config), notes)


def require_encoder_decoder(cfg: Encoder, config: Any) -> None:
    """Raise UserError for a model that has no decoder to generate with."""
    if not config.is_encoder_decoder:
        raise UserError(
            f"encoder={cfg.name} is a {config.model_type}, no encoder-decoder, which task.generation needs: choose "
            "encoder=bart-scratch, bart-base or another"
        )


def check_scratch_settings(scratch: dict[str, Any]) -> None:
    """Raise UserError for a ``model_type`` without a decoder, or a setting that its config doesn't have."""
    from transformers import AutoConfig

    if "model_type" not in scratch:
        raise UserError("encoder.scratch.model_type must be set: bart, t5, marian, ...")
    known = AutoConfig.for_model(scratch["model_type"])
    if not known.is_encoder_decoder:
        raise UserError(f"encoder.scratch.model_type={known.model_type} is no encoder-decoder: bart, t5, marian, ...")
    for name in scratch:
        if not hasattr(known, name):
            raise UserError(f"encoder.scratch.{name} is not known: {suggest_nearest(name, known.to_dict())}")


def make_token_settings(tokenizer: Any) -> dict[str, Any]:
    """What a transformers config has to know of a tokenizer; BART's decoder starts with the closing token."""
    bos = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id
    return {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": bos,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.eos_token_id,
        "forced_eos_token_id": tokenizer.eos_token_id,
    }


def load_seq2seq_tokenizer(cfg: Config, identity: Identity) -> Any:
    """The tokenizer of the run's encoder-decoder, told its task's languages; learned where there is none."""
    encoder, languages = cfg.encoder, pairs.require_generation(cfg.task).languages
    if encoder.scratch and not encoder.path:
        return load_or_train_tokenizer(cfg, identity)
    tokenizer = encoders.load_tokenizer(encoder, cfg.data.cache, OFFLINE_ENCODER)
    if tokenizer.eos_token_id is None:
        tokenizer.eos_token = tokenizer.sep_token
    if tokenizer.eos_token_id is None:
        raise UserError(f"encoder={encoder.name}: its tokenizer has no closing token, which generation stops at")
    if hasattr(tokenizer, "src_lang"):
        if languages is None:
            raise UserError(
                f"encoder={encoder.name} marks languages and task={cfg.task.name} names none: set "
                "task.generation.languages=[en,en], or others"
            )
        tokenizer.src_lang, tokenizer.tgt_lang = (find_language_code(tokenizer, language) for language in languages)
    return tokenizer


def find_language_code(tokenizer: Any, language: str) -> str:
    """A tokenizer's own code of a language: ``ro_RO`` of ``ro`` for mBART."""
    known = getattr(tokenizer, "lang_code_to_id", None) or tokenizer.all_special_tokens
    found = [code for code in known if language in (code, code.partition("_")[0])]
    if not found:
        raise UserError(
            f"task.generation.languages: the tokenizer knows no {language}: {suggest_nearest(language, known)}"
        )
    return str(found[0])


def fingerprint_seq2seq_tokenizer(tokenizer: Any) -> str:
    """As of encoders, with the language that targets are marked with."""
    return sha256_json([encoders.fingerprint_tokenizer(tokenizer), getattr(tokenizer, "tgt_lang", None)])


def load_or_train_tokenizer(cfg: Config, identity: Identity) -> Any:
    """A byte-level BPE tokenizer, BART's kind, learned from the training set's sources and targets, once."""
    from transformers import PreTrainedTokenizerFast

    task, encoder = cfg.task, cfg.encoder
    limit = pairs.resolve_train_limit(task)
    decisive = [
        VERSION,
        identity.data,
        *pairs.list_cache_key_inputs(task, task.train_split, limit),
        encoder.vocabulary_size,
    ]
    file = cache_dir(cfg.data.cache) / "tokenizers" / f"{task.name}-{shorten_digest(sha256_json(decisive))}.json"
    if not is_tokenizer_file(file):
        texts = pairs.read_pairs(task, cfg.data, task.train_split, limit)
        train_tokenizer(iter([*texts.sources, *texts.targets]), int(encoder.vocabulary_size or 8000), file)
    length = int((encoder.scratch or {}).get("max_position_embeddings", 1024))
    return PreTrainedTokenizerFast(tokenizer_file=str(file), model_max_length=length, **SPECIAL_TOKENS)


def is_tokenizer_file(file: Path) -> bool:
    """Whether a file holds a tokenizer, whole."""
    from tokenizers import Tokenizer

    try:
        Tokenizer.from_file(str(file))
    except Exception:  # tokenizers raises nothing more particular
        return False
    return True


def train_tokenizer(texts: Iterator[str], size: int, file: Path) -> None:
    """Learn a tokenizer of at most ``size`` tokens and write it, whole or not at all."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = list(SPECIAL_TOKENS.values())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    write_cached(file, lambda temporary: tokenizer.save(str(temporary)))
