"""Batch statistics of what all processes of a distributed run hold together."""

from typing import Any

import torch
from torch import Tensor, distributed


def together() -> bool:
    """True if several processes train one model."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def total(part: Tensor) -> Tensor:
    """The sum of a tensor over all processes; without gradient."""
    return _reduced(part, distributed.ReduceOp.SUM) if together() else part


def total_with_gradient(part: Tensor) -> Tensor:
    """The sum of a tensor over all processes, through which the gradient reaches every one of them."""
    return TotalOverProcesses.apply(part) if together() else part


def rows(h: Tensor) -> int:
    """How many rows the whole batch has, of which this process holds [B, d]."""
    return int(total(torch.tensor(h.shape[0], device=h.device))) if together() else h.shape[0]


def centre(h: Tensor) -> tuple[Tensor, Tensor]:
    """The whole batch's mean, [d], and this process's rows [B, d] less it.

    Rows are first taken relative to one of them: of equal rows nothing is left, not even rounding, which a method
    that divides by a deviation would take for variance.
    """
    origin = _of_first_process(h[0])
    shifted = h - origin
    mean = mean_of(shifted)
    return origin + mean, shifted - mean


def mean_of(h: Tensor) -> Tensor:
    """The whole batch's mean, [d], from this process's rows [B, d]."""
    return total(h.sum(0)) / rows(h) if together() else h.mean(0)


def covariance_of(centred: Tensor) -> Tensor:
    """The whole batch's covariance, [d, d], divided by its number of rows, from centred rows [B, d]."""
    return total(centred.T @ centred) / rows(centred)


def highest(part: Tensor) -> Tensor:
    """The greatest over all processes, entry by entry."""
    return _reduced(part, distributed.ReduceOp.MAX) if together() else part


def _reduced(part: Tensor, operation: distributed.ReduceOp.RedOpType) -> Tensor:
    result = _sendable(part)
    distributed.all_reduce(result, operation)
    return result.to(part.device)


def _of_first_process(part: Tensor) -> Tensor:
    if not together():
        return part
    result = _sendable(part)
    distributed.broadcast(result, 0)
    return result.to(part.device)


def _sendable(part: Tensor) -> Tensor:
    """A detached copy, on a GPU if that is all the processes can exchange."""
    return part.detach().to("cuda" if distributed.get_backend() == "nccl" else part.device, copy=True)


class TotalOverProcesses(torch.autograd.Function):
    """The sum over processes; every process's loss depends on every part, so the gradient is a sum over them too."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        """Any shape."""
        return total(part)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The same shape."""
        return total(gradient)
