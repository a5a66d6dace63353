"""The tokenizer of a model that writes or predicts words: its own, with an end token, or one learned from texts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from isobench.common.files import print_remaking, read_checksummed, sha256_json, write_cached
from isobench.config.schema import Config, Encoder
from isobench.data.cache import name_cached_file
from isobench.data.sources import require_unchanged
from isobench.models.tokenization import load_tokenizer

VERSION = 2  # of learned tokenizers, part of their cache key
DEFAULT_SIZE = 8000  # of a learned vocabulary
SPECIAL_TOKENS = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}  # ids 0 to 3


def load_with_end(encoder: Encoder, cache: str | None, instead: str) -> Any:
    """Load a tokenizer with an end token, which is its separator if it has no other."""
    tokenizer = load_tokenizer(encoder, cache, instead)
    if tokenizer.eos_token_id is None:
        tokenizer.eos_token = tokenizer.sep_token
    return tokenizer


def learn_tokenizer_once(cfg: Config, data: dict[str, str], inputs: list[Any], read: Callable[[], list[str]]) -> Any:
    """Return a byte-level BPE tokenizer, as BART's, learned from texts, or read from the cache.

    ``data``: the fingerprint of the data that have the texts. ``inputs``: what decides the texts, for the cache's
    key. ``read`` reads them.
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
