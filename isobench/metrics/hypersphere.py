"""Alignment and uniformity of vectors on the unit sphere (Wang & Isola 2020)."""

import math

import torch
from torch import Tensor

from isobench.common.linalg import GRAM_ROWS_ON_CPU, Array, as_vectors, divide_by_length


def alignment(left: Array, right: Array, power: float = 2.0) -> float:
    """Compute the mean of |u - v|^power over positive pairs, with u and v the two vectors divided by their lengths.

    0 means that both vectors of every pair have the same direction. A pair with a zero vector has no direction and is
    left out.

    Args:
        left: the first vectors of the pairs, [N, d].
        right: the second vectors, [N, d].
        power: alpha of the paper, above 0.

    Returns:
        A number from 0 to 2^power; NaN without a pair, or if an entry is not finite.
    """
    a, b = as_vectors(left), as_vectors(right)
    if a.shape != b.shape:
        raise ValueError(f"pairs need as many first as second vectors, not {tuple(a.shape)} and {tuple(b.shape)}")
    if not power > 0:
        raise ValueError(f"power must be above 0, not {power}")
    kept = (a != 0).any(1) & (b != 0).any(1)  # a row with NaN stays; a norm may underflow
    if not kept.any():
        return math.nan
    distances: Tensor = torch.linalg.vector_norm(divide_by_length(a[kept]) - divide_by_length(b[kept]), dim=1)
    return distances.pow(power).mean().item()


def uniformity(h: Array, t: float = 2.0) -> float:
    """Compute log(mean over i < j of exp(-t |u_i - u_j|^2)), with u_i = h_i / |h_i|, of vectors [N, d].

    The smaller, the more evenly the directions cover the sphere: from -4t (two opposite vectors) to 0 (all have one
    direction). Each vector is compared with every other one, so it takes O(N^2 d) time, and memory for 512 rows of
    the comparison. A zero row has no direction and is left out. It is the paper's measure, and the loss of
    `isobench.calibration.Uniformity` at strength 1.

    Returns:
        The logarithm; NaN with fewer than two vectors that have a direction, or if an entry is not finite.
    """
    vectors = as_vectors(h)
    if not t > 0:
        raise ValueError(f"t must be above 0, not {t}")
    units = divide_by_length(vectors[(vectors != 0).any(1)])
    count = len(units)
    if count < 2:
        return math.nan
    total = torch.tensor(-math.inf, dtype=torch.float64, device=units.device)
    for start in range(0, count, GRAM_ROWS_ON_CPU):
        piece = units[start : start + GRAM_ROWS_ON_CPU]
        exponents = -2 * t * (1 - piece @ units.T)  # -t |u_i - u_j|^2, [b, N]
        itself = torch.arange(len(piece))
        exponents[itself, itself + start] = -math.inf
        total = torch.logaddexp(total, exponents.flatten().logsumexp(0))
    return total.item() - math.log(count) - math.log(count - 1)
