"""Similarities of pairs of vectors, by the names of the settings."""

from collections.abc import Callable

import torch
from torch import Tensor

from isobench.common.linalg import cosine
from isobench.metrics.similarity import correlate_ranks

# Each takes N pairs of vectors, [N, d] and [N, d], and returns their similarities, [N].
SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": cosine,  # 0 if one of two vectors is zero
    "inner": lambda left, right: (left * right).sum(1),
    # Of the vectors' coordinates: one large coordinate can't decide it (Zhelezniak et al. 2019). 0 if all are equal.
    "spearman": lambda left, right: torch.from_numpy(correlate_ranks(left.numpy(), right.numpy())).nan_to_num(),
    "l1": lambda left, right: -(left - right).abs().sum(1),
    "l2": lambda left, right: -torch.linalg.vector_norm(left - right, dim=1),
}
