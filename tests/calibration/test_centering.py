"""Test functions of a matrix; experiments/too_much_in_common holds the rest against NumPy."""

import numpy as np
import pytest
import torch

from isobench.calibration import all_but_the_top, whiten


def matrix(rows=9, columns=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64) + torch.tensor([3.0, 0, -1, 2])


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


def test_whitening_of_singular_covariances_is_finite():
    few = whiten(matrix(rows=3))
    assert torch.isfinite(few).all()
    values = torch.linalg.eigvalsh(torch.cov(few.T)).round(decimals=9)
    assert values.tolist() == [0, 0, 1, 1]  # two directions have variance
    assert not whiten(torch.ones(5, 4)).any()


def test_zipfian_whitening_of_words_that_do_not_span_the_space_is_finite():
    weights = torch.tensor([1, 1, 0, 0, 0, 0, 0, 0, 0])
    white = whiten(matrix(), weights=weights)
    assert torch.isfinite(white).all()
    assert (white[:, 1:] == 0).all()  # two words vary in one direction
    torch.testing.assert_close(white[:2, 0].abs(), torch.ones(2, dtype=torch.float64))
