"""Several calibrations of one model, in order, each before or after the pooler and with its own target matrix."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isobench.calibration.base import Calibration, overrides_hook, require_choice


@dataclass
class Link:
    """Hold one calibration of a chain, placed ``before_pooler`` or ``after_pooler``.

    ``target``: name of the matrix that its penalty acts on, such as ``head`` or ``vocabulary``.
    """

    calibration: Calibration
    placement: str = "after_pooler"
    target: str = "head"

    def __post_init__(self) -> None:
        require_choice("placement", self.placement, ("before_pooler", "after_pooler"))


class Chain(nn.Module):
    """Apply several calibrations and the encoder's pooler one after the other, each to the output of the one before.

    Most models have a chain of one calibration. Iterating over a chain yields its calibrations in order: those placed
    before the pooler come first, and otherwise the order of the links is kept.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        super().__init__()
        if not links or not all(isinstance(link, Link) for link in links):
            raise ValueError("a chain needs at least one Link(calibration)")
        ordered = sorted(links, key=lambda link: link.placement != "before_pooler")
        self.calibrations = nn.ModuleList(link.calibration for link in ordered)
        self.targets = [link.target for link in ordered]
        self.pooler_position = sum(link.placement == "before_pooler" for link in ordered)
        self.out_dim: int = ordered[-1].calibration.out_dim
        for calibration in self:
            calibration.warns = False  # a run evaluates before its first step, when no statistics are expected

    def __iter__(self) -> Iterator[Calibration]:
        return iter(self.calibrations)  # type: ignore[arg-type]

    @property
    def reads_token_states(self) -> bool:
        """Return whether a method needs the states of all tokens; ``losses`` must then be given them."""
        return any(calibration.reads_token_states for calibration in self)

    def forward(self, h: Tensor, pooler: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Apply all calibrations and the pooler to the encoder's sentence embeddings, [B, d].

        Return the embeddings that the head gets, [B, out_dim], and the input of each calibration, for ``losses``.
        """
        inputs: list[Tensor] = []
        for position, calibration in enumerate(self):
            inputs.append(self._apply_pooler_at(position, h, pooler))
            h = _check_output(calibration, inputs[-1], calibration(inputs[-1]))
        return self._apply_pooler_at(len(inputs), h, pooler), inputs

    def _apply_pooler_at(self, position: int, h: Tensor, pooler: Callable[[Tensor], Tensor]) -> Tensor:
        return pooler(h) if position == self.pooler_position else h

    def losses(
        self,
        inputs: Sequence[Tensor],
        matrices: Mapping[str, Callable[[], Tensor]],
        token_states: Tensor | None = None,
    ) -> list[Tensor]:
        """Compute what the methods add to the task loss: penalties, regularisers and own losses, one scalar each.

        Args:
            inputs: the calibrations' inputs, as ``forward`` returned them.
            matrices: for each target's name a function that returns its matrix, [V, d].
            token_states: states of all tokens in all layers, [M, d], for the methods that read them.
        """
        losses = []
        for calibration, target, h in zip(self, self.targets, inputs, strict=True):
            if overrides_hook(calibration, "penalty"):
                losses.append(_check_loss(calibration, "penalty", calibration.penalty(matrices[target]())))
            if overrides_hook(calibration, "regularize"):
                points = token_states if calibration.reads_token_states else h
                assert points is not None, f"{type(calibration).__name__} reads token states: give them to losses"
                losses.append(_check_loss(calibration, "regularize", calibration.regularize(points)))
            if overrides_hook(calibration, "objective"):
                losses.append(_check_loss(calibration, "objective", calibration.objective(h.detach())))
        return losses

    @torch.no_grad()
    def adjust(self, matrices: Mapping[str, Callable[[], Tensor]]) -> None:
        """Let each method change the matrix that its penalty acts on, once before training; see ``losses``."""
        for calibration, target in zip(self, self.targets, strict=True):
            if overrides_hook(calibration, "adjust"):
                calibration.adjust(matrices[target]())

    def parameter_groups(self) -> list[dict[str, Any]]:
        """List the optimiser groups of all methods; a single tensor or a generator as ``params`` becomes a list."""
        groups = []
        for calibration in self:
            for group in calibration.parameter_groups():
                params = group["params"]
                groups.append({**group, "params": [params] if isinstance(params, Tensor) else list(params)})
        return groups

    @torch.no_grad()
    def prepare(self, position: int, vectors: Iterable[Tensor], pooler: Callable[[Tensor], Tensor]) -> None:
        """Call ``prepare`` of one calibration with the embeddings that reach it in the chain.

        Before training, earlier methods in the chain are still untrained during this pass: those that learn from
        batches change nothing yet. Token states reach a method unchanged, because no method changes them.

        Args:
            position: of the calibration in the chain, from 0.
            vectors: the encoder's embeddings, batches [B, d]; token states if the calibration reads those.
            pooler: as in ``forward``.
        """
        *earlier, prepared = list(self)[: position + 1]
        if prepared.reads_token_states:
            prepared.prepare(vectors)
            return

        def embeddings() -> Iterator[Tensor]:
            for h in vectors:
                for number, calibration in enumerate(earlier):
                    h = calibration(self._apply_pooler_at(number, h, pooler))
                yield self._apply_pooler_at(position, h, pooler)

        prepared.prepare(embeddings())


def find_prepared_once(chain: Chain) -> list[int]:
    """Find the positions of the methods that are prepared before training, not at the start of every epoch."""
    return [
        position
        for position, calibration in enumerate(chain)
        if overrides_hook(calibration, "prepare") and calibration.epoch_sample is None
    ]


def _check_output(calibration: Calibration, h: Tensor, output: Any) -> Tensor:
    expected = (*h.shape[:-1], calibration.out_dim)
    if not isinstance(output, Tensor) or output.shape != expected:
        made = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise TypeError(
            f"{type(calibration).__name__}.forward must return a tensor of shape {expected}, not {made}; a method "
            "that changes the width sets self.out_dim"
        )
    return output


def _check_loss(calibration: Calibration, hook: str, loss: Any) -> Any:
    if not (isinstance(loss, int | float) or (isinstance(loss, Tensor) and loss.numel() == 1)):
        made = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise TypeError(f"{type(calibration).__name__}.{hook} must return a tensor with one number, not {made}")
    return loss
