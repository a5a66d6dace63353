"""Load a model's tokenizer and fingerprint it."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from isobench.common.errors import refuse
from isobench.common.files import sha256_json
from isobench.common.packages import find_package_folder
from isobench.config.schema import Encoder
from isobench.data import weights
from isobench.data.word_vectors import open_word_vectors
from isobench.models.loading import handle_loading_errors
from isobench.models.word_vectors import WordTokenizer

MOST_SPECIAL_TOKENS = 200  # a tokenizer with more tokens has words too, so its vocabulary is not looked through


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
    special = set(tokenizer.all_special_tokens)
    knows_none = len(tokenizer) <= MOST_SPECIAL_TOKENS and set(tokenizer.get_vocab()) <= special
    refuse((knows_none, f"encoder={cfg.name}: its tokenizer knows no word: {weights.ADD_TOKENIZER}"))
    return tokenizer


def count_tokens(tokenizer: Any, texts: Sequence[str], words: int) -> np.ndarray:
    """Count how often each of the first ``words`` tokens of a vocabulary is in texts, [words]; none is added."""
    ids = tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]
    return np.bincount(np.fromiter(itertools.chain.from_iterable(ids), np.int64), minlength=words)[:words]


def fingerprint_tokenizer(tokenizer: Any) -> str:
    """Return the sha256 of what decides a tokenizer's output: its class, and its serialised pipeline or vocabulary.

    Truncation and padding are left out: each call sets them, and the tokenizer keeps those of the last call.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    pipeline = json.loads(backend.to_str()) if backend is not None else tokenizer.get_vocab()
    pipeline |= {"truncation": None, "padding": None}
    return sha256_json([type(tokenizer).__name__, tokenizer.truncation_side, pipeline])
