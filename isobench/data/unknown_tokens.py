"""Notice training texts that a tokenizer does not know: an encoder learns nothing from unknown tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from isobench.common.errors import UserError

MOST_UNKNOWN = 0.01  # share of unknown tokens above which a run's record has a warning


def check_token_ids(encoder: str, ids: np.ndarray, words: int | None) -> None:
    """Raise UserError if the encoder has no vector for a token: its tokenizer must belong to another encoder.

    Args:
        encoder: the encoder's name.
        ids: token ids, an array of integers of any length.
        words: how many tokens the encoder has vectors for; None if that is not known.
    """
    highest = int(ids.max(initial=0))
    if words is not None and highest >= words:
        raise UserError(
            f"encoder={encoder}: its tokenizer gives token id {highest:,}, but the encoder knows only {words:,} "
            "tokens: use the tokenizer that was saved with these weights"
        )


def describe_unknown_tokens(encoder: str, tokenizer: Any, ids: Sequence[np.ndarray]) -> list[str]:
    """Return a warning in a list if a tokenizer does not know more than ``MOST_UNKNOWN`` of the training tokens.

    Tokens that the tokenizer adds to every text, such as ``[CLS]``, are not counted.

    Args:
        encoder: the encoder's name.
        tokenizer: its transformers tokenizer.
        ids: the training texts' token ids, arrays of integers of any length.

    Raises:
        UserError: it knows none of them.
    """
    unknown = tokenizer.unk_token_id
    others = {getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", "cls", "sep")}
    if unknown is None or unknown in others:  # as GPT-2, which has a token for every byte
        return []
    added = [token for token in tokenizer.all_special_ids if token != unknown]
    counts = np.zeros(1 + max([unknown, *added, *(int(part.max(initial=0)) for part in ids)]), np.int64)
    for part in ids:
        counts += np.bincount(part, minlength=len(counts))
    total = int(counts.sum() - counts[added].sum())
    share = counts[unknown] / total if total else 1.0
    if share == 1:
        raise UserError(
            f"encoder={encoder}: its tokenizer knows no word of the training set; does it belong to this encoder, "
            "and to the language of the texts?"
        )
    if share <= MOST_UNKNOWN:
        return []
    return [f"{share:.1%} of the training tokens are unknown to the tokenizer ({tokenizer.unk_token})"]
