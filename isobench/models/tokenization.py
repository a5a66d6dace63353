"""Load a model's tokenizer, or learn one; and fingerprint it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, suggest_nearest
from isobench.common.files import print_remaking, read_checksummed, sha256_json, write_cached
from isobench.common.packages import find_package_folder
from isobench.config.schema import Config, Encoder
from isobench.data import weights
from isobench.data.cache import name_cached_file
from isobench.data.seq2seq_pairs import list_cache_key_inputs, read_pairs, require_generation, resolve_train_limit
from isobench.data.sources import read_texts, require_unchanged
from isobench.data.word_vectors import open_word_vectors
from isobench.models.loading import handle_loading_errors
from isobench.models.word_vectors import WordTokenizer
from isobench.runs.identity import Identity

MOST_SPECIAL_TOKENS = 200  # a tokenizer with more tokens has words too, so its vocabulary is not looked through
VERSION = 2  # of learned tokenizers, part of their cache key
DEFAULT_SIZE, SMALLEST_SIZE = 8000, 300  # of a learned vocabulary; the schema has the bound
SPECIAL_TOKENS = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}  # ids 0 to 3


def load_tokenizer(cfg: Encoder, cache: str | None, instead: str = "minilm") -> Any:
    """Load the encoder's tokenizer, with a padding token: where it has none, as GPT-2, its end token (always masked).

    ``instead``: the encoder that an error suggests if the hub can't be reached.
    """
    if cfg.word_vectors:
        return WordTokenizer(open_word_vectors(cfg, cache)[0])
    hint = ""
    if find_package_folder("sentencepiece") is None:  # whose absence transformers doesn't name
        hint = "; if its tokenizer is made with SentencePiece: pip install sentencepiece"
    with handle_loading_errors(cfg, instead, hint) as options:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(weights.resolve_name_or_path(cfg, cache), **options)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    # transformers makes a tokenizer of special tokens alone where its files are missing.
    if len(tokenizer) <= MOST_SPECIAL_TOKENS and set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise UserError(
            f"encoder={cfg.name}: its tokenizer knows no word, because files such as tokenizer.json or vocab.txt are "
            f"missing: {weights.ADD_TOKENIZER}"
        )
    return tokenizer


def fingerprint_tokenizer(tokenizer: Any) -> str:
    """Return the sha256 of what decides a tokenizer's output: its class, and its serialised pipeline or vocabulary.

    Truncation and padding are left out: each call sets them, and the tokenizer keeps those of the last call.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    pipeline = json.loads(backend.to_str()) if backend is not None else tokenizer.get_vocab()
    pipeline |= {"truncation": None, "padding": None}
    return sha256_json([type(tokenizer).__name__, tokenizer.truncation_side, pipeline])


def load_seq2seq_tokenizer(cfg: Config, identity: Identity) -> Any:
    """Load the tokenizer of the run's encoder-decoder and set its languages; learn one if the encoder has none.

    It is learned from the training set's sources and targets.
    """
    task, encoder = cfg.task, cfg.encoder
    languages = require_generation(task).languages
    if encoder.scratch and not encoder.path:
        limit = resolve_train_limit(task)

        def read() -> list[str]:
            texts = read_pairs(task, cfg.data, task.train_split, limit)
            return [*texts.sources, *texts.targets]

        inputs = [VERSION, identity.data, *list_cache_key_inputs(task, task.train_split, limit)]
        return _learn_once(cfg, identity.data, inputs, read)
    tokenizer = _load_with_end(encoder, cfg.data.cache, "bart-scratch")
    if hasattr(tokenizer, "src_lang"):
        if languages is None:
            raise UserError(
                f"encoder={encoder.name} needs to know the languages and task={task.name} names none: set "
                "task.generation.languages=[en,en], or others"
            )
        tokenizer.src_lang, tokenizer.tgt_lang = (_find_language_code(tokenizer, language) for language in languages)
    return tokenizer


def _find_language_code(tokenizer: Any, language: str) -> str:
    """Return a tokenizer's own code of a language: ``ro_RO`` for ``ro`` in mBART."""
    codes = getattr(tokenizer, "lang_code_to_id", None) or tokenizer.all_special_tokens
    matches = [code for code in codes if language in (code, code.partition("_")[0])]
    if not matches:
        raise UserError(
            f"task.generation.languages: the tokenizer knows no {language}: {suggest_nearest(language, codes)}"
        )
    return str(matches[0])


def load_language_tokenizer(cfg: Config, identity: Identity) -> Any:
    """Load the tokenizer of a language model, which needs an end token; learn one if the encoder has none."""
    task, encoder = cfg.task, cfg.encoder
    if encoder.scratch and not encoder.path:
        inputs = [VERSION, "language", identity.data, task.train_split, list(task.text)]
        learned = _learn_once(cfg, identity.data, inputs, lambda: read_texts(task, cfg.data, task.train_split))
        if len(learned) < (wanted := encoder.vocabulary_size or DEFAULT_SIZE):
            smaller = f"set encoder.vocabulary_size={len(learned)}, or " if len(learned) >= SMALLEST_SIZE else ""
            raise UserError(
                f"encoder.vocabulary_size={wanted}: the training text gives {len(learned):,} tokens; {smaller}name a "
                "longer text"
            )
        return learned
    tokenizer = _load_with_end(encoder, cfg.data.cache, "gpt-scratch")
    if task.language and task.language.objective == "masked" and tokenizer.mask_token_id is None:
        raise UserError(
            f"encoder={encoder.name}: the tokenizer has no mask token; choose task.language.objective=causal"
        )
    return tokenizer


def _load_with_end(encoder: Encoder, cache: str | None, instead: str) -> Any:
    """Load a tokenizer with an end token, which is its separator if it has no other."""
    tokenizer = load_tokenizer(encoder, cache, instead)
    if tokenizer.eos_token_id is None:
        tokenizer.eos_token = tokenizer.sep_token
    if tokenizer.eos_token_id is None:
        raise UserError(
            f"encoder={encoder.name}: the tokenizer has no end token, so texts can't end; choose another encoder"
        )
    return tokenizer


def _learn_once(cfg: Config, data: dict[str, str], inputs: list[Any], read: Callable[[], list[str]]) -> Any:
    """Return a byte-level BPE tokenizer, as BART's, learned from texts, or read from the cache.

    ``data``: the fingerprint of the data that have the texts.
    """
    from transformers import PreTrainedTokenizerFast

    encoder = cfg.encoder
    key = sha256_json([*inputs, encoder.vocabulary_size])
    file = name_cached_file(cfg.data.cache, "tokenizers", cfg.task.name, key, "json")
    learned = read_learned_tokenizer(file)
    if learned is None:
        texts = read()
        require_unchanged(cfg.task, cfg.data, data)
        train_tokenizer(iter(texts), encoder.vocabulary_size or DEFAULT_SIZE, file)
        learned = read_learned_tokenizer(file)
    length = int((encoder.scratch or {}).get("max_position_embeddings", 1024))
    return PreTrainedTokenizerFast(tokenizer_object=learned, model_max_length=length, **SPECIAL_TOKENS)


def read_learned_tokenizer(file: Path) -> Any:
    """Read a ``tokenizers.Tokenizer`` from the cache; None if it is missing, or damaged, which is said in a line."""
    from tokenizers import Tokenizer

    if not file.exists():
        return None
    try:
        return Tokenizer.from_str(read_checksummed(file).decode())
    except Exception:  # tokenizers raises no kind of its own
        print_remaking(file)
        return None


def train_tokenizer(texts: Iterator[str], size: int, file: Path) -> None:
    """Learn a byte-level BPE tokenizer of at most ``size`` tokens and write it to ``file``."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL_TOKENS.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    with write_cached(file) as temporary:
        tokenizer.save(str(temporary))
