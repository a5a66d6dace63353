"""Define a sentence encoder, which pools the token vectors of a transformers model, and BERT's pooler."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isobench.data.packing import Packing
from isobench.models.packed_attention import make_row_arguments


class SentenceEncoder(nn.Module):
    """Turn token ids into one vector per sentence, before any pooler.

    Args:
        model: a transformers encoder or decoder without its pooler.
        pooling: ``pooler`` and ``cls`` take the first token, ``mean`` averages over tokens, ``last`` takes the last.
        layer: the layer whose output is pooled: 0 is the embeddings, 1 the first layer, ...; None is the model's
            output.
        first_token_only: the model's last layer computes each sentence's first token and no other.
        first_position: the number of a sentence's first position, if the model can read packed sentences.
    """

    def __init__(
        self,
        model: nn.Module,
        pooling: str,
        layer: int | None = None,
        first_token_only: bool = False,
        first_position: int | None = None,
    ) -> None:
        super().__init__()
        self.model, self.pooling, self.layer = model, pooling, layer
        self.first_token_only, self.first_position = first_token_only, first_position

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        packing: Packing | None = None,
        **arguments: Tensor,
    ) -> Tensor:
        """Compute the sentences' vectors, [b, d].

        Args:
            input_ids: [b, T]; the row of packed sentences, [1, N].
            attention_mask: [b, T], 0 at padding; None if the sentences are packed.
            packing: where the b sentences are in the row.
            positions: of the row's tokens in their sentences, from 0, [1, N]; None if the sentences are padded.
            arguments: further arguments of the model, shaped as ``input_ids``.
        """
        if packing is not None and positions is not None and self.first_position is not None:
            row = make_row_arguments(input_ids, positions + self.first_position, packing)
            return self._pool_row(self._run_model(**row, **arguments)[0], packing)
        assert attention_mask is not None
        hidden = self._run_model(input_ids=input_ids, attention_mask=attention_mask, **arguments)  # (b, T, d)
        return self._pool(hidden, attention_mask)

    def pool_layers(
        self, layers: Sequence[int | None], input_ids: Tensor, attention_mask: Tensor, **arguments: Tensor
    ) -> list[Tensor]:
        """Compute the vectors of padded sentences at several layers in one pass of the model, [b, d] each.

        Args:
            layers: as the constructor's ``layer``.
            input_ids: [b, T].
            attention_mask: [b, T], 0 at padding.
            arguments: further arguments of the model, shaped as ``input_ids``.
        """
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, **arguments
        )
        hidden = (output.last_hidden_state if layer is None else output.hidden_states[layer] for layer in layers)
        return [self._pool(states, attention_mask) for states in hidden]

    def _run_model(self, **arguments: Any) -> Tensor:
        """Return the output of the chosen layer, [b, T, d]."""
        if self.layer is None:
            output: Tensor = self.model(**arguments).last_hidden_state
        else:
            output = self.model(output_hidden_states=True, **arguments).hidden_states[self.layer]
        return output

    def _pool(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Pool padded token vectors, [b, T, d] -> [b, d]."""
        if self.pooling in ("pooler", "cls"):
            return hidden[:, 0]
        if self.pooling == "mean":
            mask = attention_mask[:, :, None].to(hidden.dtype)
            return (hidden * mask).sum(1) / mask.sum(1)
        last = attention_mask.sum(1) - 1
        return hidden[torch.arange(len(hidden), device=hidden.device), last]

    def _pool_row(self, hidden: Tensor, packing: Packing) -> Tensor:
        """Pool the token vectors of packed sentences, [N, d] -> [b, d]."""
        if self.pooling in ("pooler", "cls"):
            return hidden if self.first_token_only else hidden.index_select(0, packing.first)
        return packing.average(hidden) if self.pooling == "mean" else hidden.index_select(0, packing.last)

    def vocabulary(self) -> Tensor:
        """Return the input embedding matrix, [V, d]."""
        return self.model.get_input_embeddings().weight  # type: ignore[operator]


class Pooler(nn.Module):
    """BERT's pooler: dense and tanh, [B, d] -> [B, d]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> [B, d]."""
        return torch.tanh(self.dense(h))
