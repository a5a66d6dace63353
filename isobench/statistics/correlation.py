"""Rank correlations: of all runs, and within seeds with something else held fixed."""

import math

import numpy as np


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Compute Spearman's rank correlation; NaN for fewer than three points, or if all values of a side are equal."""
    from scipy import stats  # imported here because it takes 0.7 s, and planning a sweep does not need it

    if len(x) < 3 or len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return math.nan
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


def correlate_partially(x: np.ndarray, y: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """Compute Spearman's partial correlation within each seed: [..., n] and [..., n] -> [...].

    x and y are ranked. Both ranks are reduced by their least-squares fit on a constant and ``given``; the result is
    the correlation of what is left. NaN where nothing is left of x or y, or where fewer than three degrees of freedom
    remain.

    Args:
        x: isotropy of a seed's runs. [..., n]
        y: their scores. [..., n]
        given: what is held fixed, such as a column of 0 and 1 for each method; the same for all seeds. [n, k]
    """
    from scipy import stats  # imported here because it takes 0.7 s, and planning a sweep does not need it

    n = x.shape[-1]
    constant = np.ones((n, 1))
    basis = span(constant if given is None else np.hstack([constant, given]))
    if n - basis.shape[1] < 3:
        return np.full(x.shape[:-1], math.nan)
    rest = [ranks - (ranks @ basis) @ basis.T for ranks in (stats.rankdata(own, axis=-1) for own in (x, y))]
    lengths = [np.linalg.norm(part, axis=-1) for part in rest]
    is_defined = np.minimum(*lengths) > 1e-9 * n  # below it only rounding is left
    product = np.where(is_defined, lengths[0] * lengths[1], math.nan)
    return np.clip((rest[0] * rest[1]).sum(-1) / product, -1, 1)


def span(columns: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the space that columns span: [n, k] -> [n, rank]."""
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    basis: np.ndarray = left[:, values > values[0] * 1e-10]
    return basis
