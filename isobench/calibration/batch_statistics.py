"""Batch statistics of what all processes of a distributed run hold together."""

from typing import Any

import torch
from torch import Tensor, distributed


def is_distributed() -> bool:
    """True if several processes train one model."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def sum_over_processes(part: Tensor) -> Tensor:
    """The sum of a tensor over all processes; without gradient."""
    return _all_reduce(part, distributed.ReduceOp.SUM) if is_distributed() else part


def sum_over_processes_with_grad(part: Tensor) -> Tensor:
    """The sum of a tensor over all processes, through which the gradient reaches every one of them."""
    return SumOverProcesses.apply(part) if is_distributed() else part


def count_batch_rows(h: Tensor) -> int:
    """How many rows the whole batch has, of which this process holds [B, d]."""
    return int(sum_over_processes(torch.tensor(h.shape[0], device=h.device))) if is_distributed() else h.shape[0]


def center_batch(h: Tensor) -> tuple[Tensor, Tensor]:
    """The whole batch's mean, [d], and this process's rows [B, d] less it.

    Rows are first taken relative to one of them: of equal rows nothing is left, not even rounding, which a method
    that divides by a deviation would take for variance.
    """
    origin = _broadcast_from_first(h[0])
    shifted = h - origin
    mean = batch_mean(shifted)
    return origin + mean, shifted - mean


def batch_mean(h: Tensor) -> Tensor:
    """The whole batch's mean, [d], from this process's rows [B, d]."""
    return sum_over_processes(h.sum(0)) / count_batch_rows(h) if is_distributed() else h.mean(0)


def batch_covariance(centred: Tensor) -> Tensor:
    """The whole batch's covariance, [d, d], divided by its number of rows, from centred rows [B, d]."""
    return sum_over_processes(centred.T @ centred) / count_batch_rows(centred)


def max_over_processes(part: Tensor) -> Tensor:
    """The greatest over all processes, entry by entry."""
    return _all_reduce(part, distributed.ReduceOp.MAX) if is_distributed() else part


def _all_reduce(part: Tensor, operation: distributed.ReduceOp.RedOpType) -> Tensor:
    result = _copy_for_exchange(part)
    distributed.all_reduce(result, operation)
    return result.to(part.device)


def _broadcast_from_first(part: Tensor) -> Tensor:
    if not is_distributed():
        return part
    result = _copy_for_exchange(part)
    distributed.broadcast(result, 0)
    return result.to(part.device)


def _copy_for_exchange(part: Tensor) -> Tensor:
    """A detached copy, on a GPU if that is all the processes can exchange."""
    return part.detach().to("cuda" if distributed.get_backend() == "nccl" else part.device, copy=True)


class SumOverProcesses(torch.autograd.Function):
    """The sum over processes; every process's loss depends on every part, so the gradient is a sum over them too."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        """Any shape."""
        return sum_over_processes(part)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The same shape."""
        return sum_over_processes(gradient)
