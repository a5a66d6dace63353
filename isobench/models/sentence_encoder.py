"""Define a sentence encoder, which pools the token vectors of a transformers model, and BERT's pooler."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isobench.data.batches.tokens import Packing
from isobench.models import attention

Layer = int | str | None  # as encoder.layer


class SentenceEncoder(nn.Module):
    """Turn token ids into one vector per sentence, before any pooler.

    Args:
        model: a transformers encoder or decoder without its pooler.
        pooling: ``pooler`` and ``cls`` take the first token, ``mean`` averages over tokens, ``last`` takes the last.
        layer: the layer whose output is pooled: 0 is the embeddings, 1 the first layer; None is the model's output.
        first_token_only: the model's last layer computes each sentence's first token and no other.
        first_position: the number of a sentence's first position, if the model can read packed sentences.
    """

    def __init__(
        self,
        model: nn.Module,
        pooling: str,
        layer: Layer = None,
        first_token_only: bool = False,
        first_position: int | None = None,
    ) -> None:
        super().__init__()
        self.model, self.pooling, self.layer = model, pooling, layer
        self.first_token_only, self.first_position = first_token_only, first_position

    def forward(self, token_places: Tensor | None = None, **inputs: Any) -> Tensor:
        """Compute the sentences' vectors, [b, d]; ``inputs`` are a chunk of a batch, as ``Collator`` makes them.

        Padded sentences have ``input_ids`` and ``attention_mask`` (0 at padding), [b, T]. Packed ones are a row of
        ``input_ids``, with the tokens' ``positions`` in their sentences, from 0, [1, N], and ``packing``, which says
        where the sentences are. Others, shaped as ``input_ids``, go to the model. ``token_places`` are not read.
        """
        output = self._run_model(self.layer is not None, **inputs)
        return self._pool(output, inputs.get("attention_mask"), inputs.get("packing"))

    def encode_with_tokens(self, token_places: Tensor | None = None, **inputs: Any) -> tuple[Tensor, list[Tensor]]:
        """Compute the sentences' vectors, [b, d], and the states of their n tokens in each layer, [n, d].

        ``token_places`` [n]: those of tokens that are not padding, in ``input_ids`` flattened; None in a packed row.
        """
        assert token_places is not None or "packing" in inputs, "the places of a padded batch's tokens are needed"
        assert not self.first_token_only, "the last layer computes first tokens only: call compute_all_tokens first"
        output = self._run_model(True, **inputs)
        states = [hidden.flatten(0, 1) for hidden in output.hidden_states[1:]]
        if token_places is not None and len(token_places) < len(states[0]):
            states = [hidden.index_select(0, token_places) for hidden in states]
        return self._pool(output, inputs.get("attention_mask"), inputs.get("packing")), states

    def compute_all_tokens(self) -> None:
        """Let the last layer compute all tokens, for ``encode_with_tokens``, where it computes the first only."""
        if self.first_token_only:
            attention.compute_all_tokens(self.model)
            self.first_token_only = False

    def _run_model(self, all_layers: bool, packing: Packing | None = None, **inputs: Any) -> Any:
        if packing is not None and self.first_position is not None:
            positions = inputs.pop("positions") + self.first_position
            inputs |= attention.make_row_arguments(inputs["input_ids"], positions, packing)
        return self.model(**inputs, **({"output_hidden_states": True} if all_layers else {}))

    def _pool(self, output: Any, attention_mask: Tensor | None, packing: Packing | None) -> Tensor:
        hidden = select_layer(output, self.layer)  # [b, T, d]; packed [1, N, d]
        if packing is not None:
            return self._pool_row(hidden[0], packing)
        assert attention_mask is not None
        return self._pool_padded(hidden, attention_mask)

    def pool_layers(
        self, layers: Sequence[Layer], input_ids: Tensor, attention_mask: Tensor, **arguments: Tensor
    ) -> list[Tensor]:
        """Compute the vectors of padded sentences at several layers in one pass of the model, [b, d] each."""
        states = self.compute_states(layers, input_ids=input_ids, attention_mask=attention_mask, **arguments)
        return [self._pool_padded(hidden, attention_mask) for hidden in states]

    def compute_states(self, layers: Sequence[Layer], **arguments: Tensor) -> Iterator[Tensor]:
        """Compute the token states of padded sentences at several layers in one pass, [b, T, d] each."""
        output = self.model(output_hidden_states=True, **arguments)
        return (select_layer(output, layer) for layer in layers)

    def _pool_padded(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        if self.pooling in ("pooler", "cls"):
            return hidden[:, 0]
        if self.pooling == "mean":
            mask = attention_mask[:, :, None].to(hidden.dtype)
            return (hidden * mask).sum(1) / mask.sum(1)
        last = attention_mask.sum(1) - 1
        return hidden[torch.arange(len(hidden), device=hidden.device), last]

    def _pool_row(self, hidden: Tensor, packing: Packing) -> Tensor:
        if self.pooling in ("pooler", "cls"):
            return hidden if self.first_token_only else hidden.index_select(0, packing.first)
        return packing.average(hidden) if self.pooling == "mean" else hidden.index_select(0, packing.last)

    def vocabulary(self) -> Tensor:
        """Return the input embedding matrix, [V, d]."""
        return self.model.get_input_embeddings().weight  # type: ignore[operator]


def select_layer(output: Any, layer: Layer) -> Tensor:
    """Return the token states of a layer, or an average of two, from a transformers output with hidden states.

    ``first_last`` is that of SimCSE and BERT-whitening: layer 1, the first above the embeddings, and the last.
    ``last_two`` averages the last two. BERT-flow's option avg-last-2 names the second and computes the first
    (experiments/mteb/errata.md).
    """
    if layer is None:
        return output.last_hidden_state
    states = output.hidden_states
    if isinstance(layer, str):
        return (states[{"first_last": 1, "last_two": -2}[layer]] + states[-1]) / 2
    return states[layer]


class Pooler(nn.Module):
    """BERT's pooler: dense and tanh, [B, d] -> [B, d]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> [B, d]."""
        return torch.tanh(self.dense(h))
