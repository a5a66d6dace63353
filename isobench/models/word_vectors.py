"""An encoder of word vectors: a sentence's vector is the mean of its known words' vectors; nothing is trained."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isobench.models.sentence_encoder import Layer, SentenceEncoder

# Of what the vocabulary lacks as a whole: "don't" is do + n't and "cat's" cat + 's, as where GloVe was trained.
PARTS = re.compile(r"\w+(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b|\w+|[^\w\s]", re.IGNORECASE)


class WordTokenizer:
    """Split texts into words, as far as isobench calls a tokenizer of transformers.

    A text is split at blanks. A piece that the vocabulary has, as it is written or else in lower case, is one token,
    such as ``u.s.``. Any other is split into words, English endings and single marks by ``PARTS``; each is looked up
    in the same way. Unknown ones get the id V, for which there is no vector.
    """

    model_max_length = 1 << 20
    truncation_side = "right"
    unk_token = "<unknown>"
    bos_token_id = eos_token_id = cls_token_id = sep_token_id = None

    def __init__(self, words: Sequence[str]) -> None:
        self.ids = dict(zip(reversed(words), range(len(words) - 1, -1, -1), strict=True))  # the first of two counts
        self.unk_token_id = self.pad_token_id = len(words)
        self.all_special_ids = [self.unk_token_id]

    def get_vocab(self) -> dict[str, int]:
        """Return the words' ids, that of unknown ones too."""
        return self.ids | {self.unk_token: self.unk_token_id}

    def __call__(
        self, texts: Sequence[str], pair: Sequence[str] | None = None, *, max_length: int | None = None, **_: Any
    ) -> dict[str, list[list[int]]]:
        """Return the token ids of texts, or of pairs of texts, cut to ``max_length``; other settings are ignored."""
        if pair is not None:
            texts = [f"{first} {second}" for first, second in zip(texts, pair, strict=True)]
        split = [text.split() for text in texts]
        ids = {piece: self._find(piece) for piece in {piece for pieces in split for piece in pieces}}
        return {"input_ids": [[id_ for piece in pieces for id_ in ids[piece]][:max_length] for pieces in split]}

    def _find(self, piece: str) -> list[int]:
        whole = self._find_word(piece)
        return [whole] if whole != self.unk_token_id else list(map(self._find_word, PARTS.findall(piece)))

    def _find_word(self, word: str) -> int:
        return self.ids.get(word, self.ids.get(word.lower(), self.unk_token_id))


class WordVectorEncoder(SentenceEncoder):
    """Average the vectors of known words, [V, d] float32; a sentence without one gets the zero vector."""

    vectors: Tensor

    def __init__(self, vectors: np.ndarray) -> None:
        super().__init__(nn.Identity(), "mean")
        self.register_buffer("vectors", torch.from_numpy(vectors), persistent=False)

    def forward(self, token_places: Tensor | None = None, **inputs: Any) -> Tensor:
        """Compute the sentences' vectors, [b, d], of padded sentences."""
        return self.pool_layers([None], **inputs)[0]

    def pool_layers(
        self, layers: Sequence[Layer], input_ids: Tensor, attention_mask: Tensor, **arguments: Tensor
    ) -> list[Tensor]:
        """Compute the sentences' vectors, [b, d]: the same for each layer, as there is only one."""
        known = attention_mask.bool() & (input_ids < len(self.vectors))
        counts = known.sum(1)
        starts = counts.cumsum(0) - counts
        mean = nn.functional.embedding_bag(input_ids[known], self.vectors, starts, mode="mean")
        return [mean] * len(layers)

    def compute_states(self, layers: Sequence[Layer], **arguments: Tensor) -> Iterator[Tensor]:
        """Return the vectors of padded sentences' words, [b, T, d], for each layer; unknown words get zeros."""
        known = arguments["input_ids"] < len(self.vectors)
        states = self.vectors[arguments["input_ids"] * known] * known[..., None]
        return (states for _ in layers)

    def vocabulary(self) -> Tensor:
        """Return the words' vectors, [V, d]."""
        return self.vectors
