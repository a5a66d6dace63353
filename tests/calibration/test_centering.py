"""The centring family on matrices, row by row in float64."""

import numpy as np
import pytest
import torch

from isobench.calibration import all_but_the_top, center, center_scaled, whiten


def matrix(rows=9, columns=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64) + torch.tensor([3.0, 0, -1, 2])


def test_center_takes_the_mean_away():
    w = matrix()
    expected = np.array([[float(w[i, j]) - sum(float(x) for x in w[:, j]) / 9 for j in range(4)] for i in range(9)])
    np.testing.assert_allclose(center(w).numpy(), expected, atol=1e-14)


def test_center_scaled_takes_each_rows_share_of_the_mean_direction_away():
    w = matrix()
    w[2] = 0
    lengths = [float(row @ row) ** 0.5 for row in w]
    mean = sum(row / length for row, length in zip(w, lengths, strict=True) if length) / 9
    for i in range(9):
        torch.testing.assert_close(center_scaled(w)[i], w[i] - lengths[i] * mean, rtol=1e-13, atol=1e-13)
    assert not center_scaled(w)[2].any()


@pytest.mark.parametrize("D", [0, 1, 2, 4])
@pytest.mark.parametrize("corrected", [True, False])
def test_all_but_the_top_removes_the_top_directions(D, corrected):
    w = matrix().numpy()
    centred = w - w.mean(0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:D]
    projected = centred if corrected else w
    expected = centred - sum((np.outer(projected @ u, u) for u in directions), np.zeros_like(w))
    found = all_but_the_top(torch.from_numpy(w), D, centered_projection=corrected)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_whitening_is_bert_whitenings():
    w = matrix(rows=30).numpy()
    u, s, _ = np.linalg.svd(np.cov(w.T))
    expected = (w - w.mean(0)) @ u @ np.diag(1 / np.sqrt(s))
    found = whiten(torch.from_numpy(w)).numpy()
    signs = np.sign((found * expected).sum(0))  # an eigenvector's sign is anybody's choice
    np.testing.assert_allclose(found * signs, expected, atol=1e-10)


def test_whitening_of_singular_covariances_is_finite():
    few = whiten(matrix(rows=3))
    assert torch.isfinite(few).all()
    values = torch.linalg.eigvalsh(torch.cov(few.T)).round(decimals=9)
    assert values.tolist() == [0, 0, 1, 1]  # two directions have variance
    assert not whiten(torch.ones(5, 4)).any()


COUNTS = torch.tensor([5, 0, 1, 3, 1, 8, 2, 1, 40])


def test_zipfian_centring_counts_a_row_as_often_as_it_occurs():
    w = matrix()
    repeated = w.numpy().repeat(COUNTS.numpy(), axis=0)
    np.testing.assert_allclose(center(w, COUNTS).numpy(), w.numpy() - repeated.mean(0), atol=1e-13)
    torch.testing.assert_close(center(w, torch.full((9,), 0.1)), center(w), rtol=0, atol=1e-13)


def test_zipfian_whitening_is_the_svd_of_rows_scaled_by_the_roots_of_their_shares():
    """Yokoi et al. 2024, Algorithm 1: the rows that are centred times V and the inverse singular values."""
    w, p = matrix().numpy(), COUNTS.numpy() / COUNTS.sum().item()
    centred = w - p @ w
    _, singular, right = np.linalg.svd(np.sqrt(p)[:, None] * centred, full_matrices=False)
    expected = centred @ right.T / singular
    found = whiten(torch.from_numpy(w), weights=COUNTS).numpy()
    np.testing.assert_allclose(found * np.sign((found * expected).sum(0)), expected, atol=1e-10)
    np.testing.assert_allclose((p[:, None] * found).T @ found, np.eye(4), atol=1e-12)  # white for the words of a text
    np.testing.assert_allclose(p @ found, 0, atol=1e-12)
    assert whiten(torch.from_numpy(w), 2, weights=COUNTS).shape == (9, 2)


def test_zipfian_whitening_of_words_that_do_not_span_the_space_is_finite():
    weights = torch.tensor([1, 1, 0, 0, 0, 0, 0, 0, 0])
    white = whiten(matrix(), weights=weights)
    assert torch.isfinite(white).all()
    assert (white[:, 1:] == 0).all()  # two words vary in one direction
    torch.testing.assert_close(white[:2, 0].abs(), torch.ones(2, dtype=torch.float64))
