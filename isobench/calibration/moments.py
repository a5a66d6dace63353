"""Batch statistics of what all processes of a distributed run hold together."""

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
    if together():
        from torch.distributed.nn.functional import all_reduce

        return all_reduce(part)
    return part


def rows(h: Tensor) -> int:
    """How many rows the whole batch has, of which this process holds [B, d]."""
    return int(total(torch.tensor(h.shape[0], device=h.device))) if together() else h.shape[0]


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
    on_gpu = distributed.get_backend() == "nccl"  # which takes nothing else
    result = part.detach().to("cuda" if on_gpu else part.device, copy=True)
    distributed.all_reduce(result, operation)
    return result.to(part.device)
