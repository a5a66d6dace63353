"""Measures of how alike two spaces of the same rows are."""

import numpy as np


def linear_cka(x: np.ndarray, y: np.ndarray) -> float:
    """Compute linear CKA of rows [n, d] and [n, e]; NaN if all rows of one are equal."""
    x, y = x - x.mean(0), y - y.mean(0)
    x, y = x / (np.abs(x).max() or np.nan), y / (np.abs(y).max() or np.nan)
    return float(((x.T @ y) ** 2).sum() / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))


def correlate_ranks(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute Spearman's correlation of each row of [n, m] with that of another [n, m]: [n]; NaN of equal values."""
    from scipy.stats import rankdata

    x, y = (rankdata(part, axis=1) - (part.shape[1] + 1) / 2 for part in (x, y))
    norms = np.sqrt((x * x).sum(1) * (y * y).sum(1))
    return np.asarray((x * y).sum(1) / np.where(norms > 0, norms, np.nan))
