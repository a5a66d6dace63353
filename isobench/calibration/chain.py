"""The calibrations of one model, in order, each at its own place and acting on its own matrix."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isobench.calibration.base import Calibration, overrides_hook


@dataclass
class Link:
    """A calibration, where it stands (``before_pooler``, ``after_pooler``), and which matrix its penalty acts on."""

    calibration: Calibration
    placement: str = "after_pooler"
    target: str = "head"


class Chain(nn.Module):
    """Those before the pooler, the pooler, those after it; each is given what the one before it gives.

    A chain of one is the usual case. Of penalties and objectives, only those that a method defines are called.

    Args:
        links: the calibrations; of those at the same place, the first comes first.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        super().__init__()
        ordered = sorted(links, key=lambda link: link.placement != "before_pooler")
        self.calibrations = nn.ModuleList(link.calibration for link in ordered)
        self.targets = [link.target for link in ordered]
        self.before = sum(link.placement == "before_pooler" for link in ordered)
        self.out_dim: int = ordered[-1].calibration.out_dim

    def __iter__(self) -> Iterator[Calibration]:
        return iter(self.calibrations)  # type: ignore[arg-type]

    def forward(self, h: Tensor, pooler: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The encoder's [B, d] -> the head's embedding [B, out_dim], and what each calibration was given."""
        given: list[Tensor] = []
        for position, calibration in enumerate(self):
            given.append(self._apply_pooler_at(position, h, pooler))
            h = calibration(given[-1])
        return self._apply_pooler_at(len(given), h, pooler), given

    def _apply_pooler_at(self, position: int, h: Tensor, pooler: Callable[[Tensor], Tensor]) -> Tensor:
        """Through the pooler, if it stands just before this position."""
        return pooler(h) if position == self.before else h

    def losses(self, given: Sequence[Tensor], matrices: Mapping[str, Callable[[], Tensor]]) -> list[Tensor]:
        """What the methods add to the task loss: penalties, and losses of their own.

        Args:
            given: what ``forward`` returned.
            matrices: for each target how to get its matrix, [V, d].
        """
        found = []
        for calibration, target, h in zip(self, self.targets, given, strict=True):
            if overrides_hook(calibration, "penalty"):
                found.append(calibration.penalty(matrices[target]()))
            if overrides_hook(calibration, "objective"):
                found.append(calibration.objective(h.detach()))
        return found

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Every method's own optimiser groups, their parameters as lists: they are looked at more than once."""
        found = []
        for calibration in self:
            for group in calibration.parameter_groups():
                params = group["params"]
                found.append({**group, "params": [params] if isinstance(params, Tensor) else list(params)})
        return found

    @torch.no_grad()
    def prepare(self, position: int, vectors: Iterable[Tensor], pooler: Callable[[Tensor], Tensor]) -> None:
        """Show the calibration at ``position`` what it is given for the encoder's ``vectors``, batches [B, d].

        The calibrations before it are as they are before training: one that learns from batches does nothing yet.
        """
        earlier = list(self)[:position]

        def embeddings() -> Iterator[Tensor]:
            for h in vectors:
                for number, calibration in enumerate(earlier):
                    h = calibration(self._apply_pooler_at(number, h, pooler))
                yield self._apply_pooler_at(position, h, pooler)

        list(self)[position].prepare(embeddings())
