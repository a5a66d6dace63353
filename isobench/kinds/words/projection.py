"""The output projection of a model that writes or predicts words, with a chain of calibrations before it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn

from isobench.calibration.chain import Chain
from isobench.common.errors import refuse
from isobench.kinds.words.fused_loss import fused_cross_entropy

MAX_MEASURED_STATES = 20_000  # at most so many states of the first dev split are kept to measure isotropy
IDENTITY_POOLER = nn.Identity()  # what writes or predicts words has no pooler


@torch.no_grad()
def require_plain_logits(model: Any, name: str) -> None:
    """Raise UserError if a model changes its logits behind the output projection: our losses would leave it out."""
    outputs: list[Tensor] = []
    handle = model.get_output_embeddings().register_forward_hook(lambda *call: outputs.append(call[2]))
    ids = torch.arange(4)[None]
    with isolate_rng():
        written = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
        logits = model(input_ids=ids, **written).logits
    handle.remove()
    bias = getattr(model, "final_logits_bias", 0)  # [1, V], of BART's family: `sum_losses` adds it too
    is_changed = not (outputs and torch.allclose(outputs[-1] + bias, logits))
    refuse((is_changed, f"encoder={name} caps or scales its logits, which the loss here would leave out"))


@torch.no_grad()
def require_causal(model: Any, name: str) -> None:
    """Raise UserError if a token changes the logits of those before it: the model would read what it predicts."""
    ids, was_training = torch.arange(4)[None], model.training
    with isolate_rng():
        whole, start = (model.eval()(input_ids=given).logits[:, :3] for given in (ids, ids[:, :3]))
    model.train(was_training)
    reads_on = not torch.allclose(whole, start, rtol=1e-3, atol=1e-5)
    refuse((reads_on, f"encoder={name} reads the tokens that it predicts: task.language.objective=masked fits it"))


class CalibratedProjection:
    """Put a chain of calibrations before a generator's output projection, wherever the model calls it.

    A hook on ``get_output_embeddings()`` does it, because every architecture passes its states to that
    layer (T5 scales them first). The model's weights keep their names.
    """

    def __init__(self, model: Any, chain: Chain) -> None:
        self.linear: nn.Linear = model.get_output_embeddings()
        self.chain = chain
        self.model = model
        self._positions: Tensor | None = None
        self._states: list[Tensor] = []
        self.linear.register_forward_pre_hook(self._forward_pre_hook)

    @contextmanager
    def capture_states(self, positions: Tensor) -> Iterator[list[Tensor]]:
        """Make calls of the model inside this context keep the decoder's states and compute no logits.

        ``positions`` [n]: which of the b * T states to keep, counted row by row. Yields a list, to which each call
        adds the states that are kept of it, [n, d].
        """
        self._positions, self._states = positions, []
        try:
            yield self._states
        finally:
            self._positions = None

    def _forward_pre_hook(self, module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        (h,) = arguments  # (b, T, d)
        if self._positions is not None:
            self._states.append(h.flatten(0, 1).index_select(0, self._positions))
            return (h[:, :0],)
        return (self.chain(h.flatten(0, 1), IDENTITY_POOLER)[0].unflatten(0, h.shape[:2]),)

    def matrices(self) -> dict[str, Callable[[], Tensor]]:
        """Return functions for ``head``, the output, and ``vocabulary``, the input embedding, [V, d] each."""
        return {
            "head": lambda: self.linear.weight,
            "vocabulary": lambda: self.model.get_input_embeddings().weight,
        }

    def sum_losses(self, h: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Sum the cross-entropy of the labels [n] given the calibrated states [n, d], without logits [n, V]."""
        bias = self.linear.bias
        added = getattr(self.model, "final_logits_bias", None)  # [1, V], of BART's family
        if added is not None:
            bias = added[0] if bias is None else bias + added[0]
        return fused_cross_entropy(h, self.linear.weight, labels, bias, smoothing)
