"""Look up the words of a whole batch at once, for an encoder-decoder that gets the batch in chunks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class WordLookup:
    """Let each word embedding of an encoder-decoder look up the words of all chunks of a batch in one call.

    In the backward pass each call makes a dense gradient [V, d], almost all of it zeros. One call for a batch makes
    one gradient instead of one for each chunk. A hook hands out a chunk's vectors when the model looks up its words.
    It works for architectures that scale their vectors after the lookup too, which ``inputs_embeds`` does not.

    Args:
        model: a transformers encoder-decoder.
    """

    def __init__(self, model: Any) -> None:
        self.encoder_words: nn.Module = model.get_encoder().get_input_embeddings()
        self.decoder_words: nn.Module = model.get_decoder().get_input_embeddings()
        self._waiting: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}  # ids and vectors, in the order of the calls
        for module in dict.fromkeys((self.encoder_words, self.decoder_words)):
            module.register_forward_hook(self._hand_out)

    @contextmanager
    def share(self, chunks: Sequence[tuple[Tensor, Tensor]]) -> Iterator[None]:
        """Look up all words; calls of the model with these chunks, in order, inside this context get the vectors.

        Args:
            chunks: of each call the encoder's and the decoder's ids, [b, S] and [b, T].
        """
        calls: dict[nn.Module, list[Tensor]] = {}
        for read, written in chunks:
            calls.setdefault(self.encoder_words, []).append(read)
            calls.setdefault(self.decoder_words, []).append(written)
        waiting = {}
        for module, ids in calls.items():
            vectors = module(torch.cat([part.flatten() for part in ids])).split([part.numel() for part in ids])
            waiting[module] = [(part, v.unflatten(0, part.shape)) for part, v in zip(ids, vectors, strict=True)]
        self._waiting = waiting
        try:
            yield
        finally:
            self._waiting = {}

    def _hand_out(self, module: nn.Module, arguments: tuple[Tensor, ...], own: Tensor) -> Tensor:
        """Replace a lookup by the vectors that wait for these ids; other ids keep their own."""
        waiting = self._waiting.get(module)
        if not waiting or waiting[0][0].data_ptr() != arguments[0].data_ptr() or waiting[0][1].shape != own.shape:
            return own
        return waiting.pop(0)[1]
