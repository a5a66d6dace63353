"""Say what a cosine means: how high the cosines of unrelated vectors are, before and after a method."""

import math
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from isobench.common.linalg import divide_by_length

SHOWN = (0.05, 0.25, 0.5, 0.75, 0.95)  # quantiles
TAILS = (0.01, 0.001)  # shares of the pairs that lie above a level
ROWS = 1_000  # whose pairs are all compared
RESAMPLES = 200  # of the rows
RELATED = 0.8  # of the scores' range: pairs above are related ones, as those above 4 of 5 in STS Benchmark
FEW_ROWS = 200
TAIL = 0.05  # of the pairs, that a resample's levels are sought in


@dataclass(frozen=True)
class Level:
    """Hold what the cosines of unrelated vectors are after one method.

    ``pairs``: "random pairs" of the half that nothing was fitted on, or queries with documents that are "not
    relevant". ``quantiles``: 5, 25, 50, 75 and 95%. ``one_percent``, ``one_per_mille``: the value above which such a
    share lies, with its 95% interval. ``true``: the share of related pairs above the first, NaN if none are known.
    """

    method: str
    pairs: str
    quantiles: list[float]
    one_percent: tuple[float, float, float]
    one_per_mille: tuple[float, float, float]
    true: float = math.nan


def measure_level(
    method: str, left: Tensor, right: Tensor | None = None, related: np.ndarray | None = None
) -> Level | None:
    """Measure the cosines of all pairs of rows [n, d], or of rows with other rows [m, d]; None without pairs.

    The intervals are a bootstrap over rows, on each side: pairs that share a row are not independent.

    Args:
        method: what was applied to the rows.
        left: rows.
        right: other rows, such as documents beside queries.
        related: which pairs of rows and other rows are left out, [n, m].
    """
    other = left if right is None else right
    wanted = ~related if related is not None else np.ones((len(left), len(other)), bool)  # which pairs, [n, m]
    if right is None:
        wanted = np.triu(wanted, 1)
    wanted &= left.any(1).numpy()[:, None] & other.any(1).numpy()
    cosines = (divide_by_length(left) @ divide_by_length(other).T).numpy()
    if not wanted.any() or not np.isfinite(cosines).all():
        return None
    found, (i, j), weights = cosines[wanted], np.nonzero(wanted), wanted.astype(float)
    share = TAIL if min(cosines.shape) >= FEW_ROWS else 1  # a resample of few rows may have its top pairs elsewhere
    top = np.argsort(-found)[: max(2, round(share * len(found)))]
    found_top, i, j = found[top], i[top], j[top]
    rng = np.random.default_rng(0)

    # The levels if row a is drawn u[a] times and other row b v[b] times: their pair then counts u[a] v[b] times.
    def find_tails(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        above = (u[i] * v[j]).cumsum()
        places = np.searchsorted(above, np.array(TAILS) * (u @ weights @ v), side="right")
        return np.asarray(found_top[places.clip(max=len(above) - 1)])

    def draw(count: int) -> np.ndarray:
        return np.bincount(rng.integers(count, size=count), minlength=count).astype(float)

    resampled = []
    for _ in range(RESAMPLES):
        u = draw(len(left))
        resampled.append(find_tails(u, u if right is None else draw(len(other))))
    ends = np.quantile(resampled, (0.025, 0.975), axis=0).T
    tails = find_tails(np.ones(len(left)), np.ones(len(other)))
    kind = "random pairs" if right is None else "not relevant"
    one_percent, one_per_mille = map(tuple, np.column_stack([tails, ends]).tolist())
    return Level(method, kind, np.quantile(found, SHOWN).tolist(), one_percent, one_per_mille)


def measure_true(level: Level | None, cosines: np.ndarray) -> Level | None:
    """Add to a level the share of related pairs that lie above it."""
    return replace(level, true=float((cosines > level.one_percent[0]).mean())) if level and len(cosines) else level


def draw_rows(count: int, seed: int) -> np.ndarray:
    """Draw at most ``ROWS`` of so many rows, ascending."""
    return np.sort(np.random.default_rng(seed).choice(count, min(count, ROWS), replace=False))


def find_related(scores: np.ndarray) -> np.ndarray:
    """Say which scores [P] are in the top fifth of their range."""
    return np.asarray(scores >= scores.min() + RELATED * np.ptp(scores))
