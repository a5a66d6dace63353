"""Statistics of a whole batch, of which every process of a distributed run holds a part.

Without torch.distributed they are the plain statistics of one tensor.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, distributed, nn

from isobench.common.linalg import gram, row_mean, to_float64


def is_distributed() -> bool:
    """Return True if several processes train one model together."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def sum_over_processes(part: Tensor) -> Tensor:
    """Add up a tensor over all processes, without gradient."""
    return _all_reduce(part, distributed.ReduceOp.SUM) if is_distributed() else part


def sum_over_processes_with_grad(part: Tensor) -> Tensor:
    """Add up a tensor over all processes; the gradient reaches the tensor of every process."""
    if not is_distributed():
        return part
    total: Tensor = _SumOverProcesses.apply(part)  # type: ignore[no-untyped-call]
    return total


def count_effective_rows(momentum: float, sizes: Iterable[int], starts_from_constants: bool = False) -> float:
    """Count the rows whose plain mean varies as much as a moving average over batches, by the weights of its rows.

    ``momentum``: weight of the newest batch. ``sizes``: rows of each batch, the newest first. The average starts from
    the oldest batch, or from a constant; then its weights do not add up to 1, and it is relative to their sum.

    >>> round(count_effective_rows(0.95, [7] + [32] * 100), 1)
    7.8
    """
    sizes = list(sizes)
    shares = [momentum * (1 - momentum) ** age for age in range(len(sizes))]
    if not starts_from_constants:
        shares[-1] /= momentum
    return sum(shares) ** 2 / sum(share**2 / size for share, size in zip(shares, sizes, strict=True))


def count_batch_rows(h: Tensor) -> int:
    """Count the rows of the whole batch, of which this process holds [B, d]."""
    return int(sum_over_processes(torch.tensor(h.shape[0], device=h.device))) if is_distributed() else h.shape[0]


def gather_rows_with_grad(h: Tensor) -> Tensor:
    """Stack the rows of all processes, in the order of the processes: [B, d] -> [rows of the whole batch, d].

    The processes may have different numbers of rows. The gradient reaches the rows of every process.
    """
    if not is_distributed():
        return h
    counts = torch.zeros(distributed.get_world_size(), dtype=torch.long, device=h.device)
    counts[distributed.get_rank()] = len(h)
    sizes = sum_over_processes(counts).tolist()
    before = sum(sizes[: distributed.get_rank()])
    return sum_over_processes_with_grad(nn.functional.pad(h, (0, 0, before, sum(sizes) - before - len(h))))


def center_batch(h: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of the whole batch, [d], and the rows [B, d] of this process with that mean subtracted.

    First one row is subtracted from all rows, then the mean of what remains. So equal rows become exactly zero. The
    mean alone would leave rounding noise, and a method would take it for variance and divide by it.
    """
    if h.ndim != 2 or not len(h):
        raise ValueError(f"a method needs a batch of embeddings [B, d] with at least one row, not {tuple(h.shape)}")
    origin = _broadcast_from_first(h[0])
    shifted = h - origin
    mean = batch_mean(shifted)
    return origin + mean, shifted - mean


def batch_mean(h: Tensor) -> Tensor:
    """Average the rows of the whole batch: [B, d] of this process -> [d]."""
    return sum_over_processes(h.sum(0)) / count_batch_rows(h) if is_distributed() else h.mean(0)


def batch_covariance(centred: Tensor) -> Tensor:
    """Compute the covariance of the whole batch, divided by its row count, from centred rows: [B, d] -> [d, d]."""
    return sum_over_processes(centred.T @ centred) / count_batch_rows(centred)


def sample_covariance(batches: Iterable[Tensor], dim: int) -> Tensor:
    """Compute the covariance [d, d] float64 of the rows [B, d] of all batches and processes, divided by count less 1.

    The covariance of one row is 0.
    """
    count = 0
    origin = total = torch.zeros(dim, dtype=torch.float64)
    scatter = torch.zeros(dim, dim, dtype=torch.float64)
    for batch in batches:
        rows = to_float64(batch)
        if not count:  # sums of differences from a mean are exact where plain sums of squares would cancel
            origin, total, scatter = row_mean(rows), total.to(rows.device), scatter.to(rows.device)
        total = total + (rows - origin).sum(0)
        scatter = scatter + gram(rows, origin)
        count += len(rows)
    all_rows = sum_over_processes(total.new_tensor(count))
    if not all_rows:
        raise ValueError("there are no embeddings to take statistics from: the training set is empty")
    # From the scatter around this process's origin to that around its own mean, then around the mean of all rows.
    mean = origin + total / max(count, 1)
    difference = mean - sum_over_processes(count * mean) / all_rows
    scatter = scatter - count * (torch.outer(mean - origin, mean - origin) - torch.outer(difference, difference))
    return sum_over_processes(scatter) / (all_rows - 1).clamp(min=1)


def max_over_processes(part: Tensor) -> Tensor:
    """Take the maximum of a tensor over all processes, entry by entry."""
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
    """Make a detached copy, on the GPU if the backend (NCCL) exchanges nothing else."""
    return part.detach().to("cuda" if distributed.get_backend() == "nccl" else part.device, copy=True)


class _SumOverProcesses(torch.autograd.Function):
    """A sum over processes. The loss of every process depends on every part, so the gradient is summed as well."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        return sum_over_processes(part)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return sum_over_processes(gradient)
