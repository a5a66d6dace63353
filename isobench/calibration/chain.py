"""The calibrations of one model, in order, each at its own place and acting on its own matrix."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isobench.calibration.base import Calibration, overrides


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
            if position == self.before:
                h = pooler(h)
            given.append(h)
            h = calibration(h)
        return (pooler(h) if self.before == len(self.calibrations) else h), given

    def losses(self, given: Sequence[Tensor], matrices: Mapping[str, Callable[[], Tensor]]) -> list[Tensor]:
        """What the methods add to the task loss: penalties, and losses of their own.

        Args:
            given: what ``forward`` returned.
            matrices: for each target how to get its matrix, [V, d].
        """
        found = []
        for calibration, target, h in zip(self, self.targets, given, strict=True):
            if overrides(calibration, "penalty"):
                found.append(calibration.penalty(matrices[target]()))
            if overrides(calibration, "objective"):
                found.append(calibration.objective(h.detach()))
        return found

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Every method's own optimiser groups."""
        return [group for calibration in self for group in calibration.parameter_groups()]

    @torch.no_grad()
    def prepare(self, position: int, vectors: Iterable[Tensor], pooler: Callable[[Tensor], Tensor]) -> None:
        """Show the calibration at ``position`` what it is given for the encoder's ``vectors``, batches [B, d]."""
        list(self)[position].prepare(self(h, pooler)[1][position] for h in vectors)
