"""Statistics of single dimensions: Fisher score, correlation, clusters."""

import numpy as np
import pytest
import torch
from scipy import stats

from isobench.metrics import clusters_of, correlation_of, fisher_score


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_fisher_score_is_f_without_its_degrees_of_freedom(rng):
    h, labels = rng.normal(size=(40, 5)) * [1, 2, 3, 4, 1e-3] + 7, rng.choice([0, 2, 5], 40)
    f = stats.f_oneway(*(h[labels == k] for k in (0, 2, 5))).statistic
    assert fisher_score(torch.tensor(h), torch.tensor(labels)).tolist() == pytest.approx(list(f * 2 / 37), rel=1e-9)


def test_fisher_score_of_a_constant_dimension_and_of_one_class_is_0():
    h = torch.tensor([[0.1, 1.0], [0.1, 2.0], [0.1, 4.0]], dtype=torch.float32)
    assert fisher_score(h, torch.tensor([0, 1, 1]))[0] == 0
    assert fisher_score(torch.randn(20, 4), torch.full((20,), 3)).tolist() == [0] * 4


def correlation(h):
    return correlation_of(torch.tensor(np.cov(h.T, bias=True)))


def test_correlation_is_pearsons(rng):
    h = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6)) * 10.0 ** np.arange(-3, 3)
    np.testing.assert_allclose(correlation(h).numpy(), np.corrcoef(h.T), atol=1e-12)


def test_correlation_of_constant_dimensions_is_the_identity(rng):
    h = rng.normal(size=(50, 4))
    h[:, [1, 3]] = 0.25
    rho = correlation(h)
    assert rho[1].tolist() == [0, 1, 0, 0]
    assert rho[3].tolist() == [0, 0, 0, 1]
    assert rho[0, 2] == pytest.approx(np.corrcoef(h[:, 0], h[:, 2])[0, 1])


def test_clusters_find_the_planted_groups_whatever_the_signs(rng):
    groups = rng.permutation(np.repeat(np.arange(4), (5, 9, 2, 1)))
    signs, common = rng.choice([-1, 1], 17), rng.normal(size=(500, 4))
    h = signs * (common[:, groups] + 0.3 * rng.normal(size=(500, 17)))
    order, found = clusters_of(correlation(h), 0.5)
    assert sorted(order) == list(range(17))
    assert np.count_nonzero(np.diff(groups[order])) == 3  # from each group to the next, once
    assert np.array_equal(found[:, None] == found, np.equal.outer(groups, groups))
    assert np.bincount(found).tolist() == [0, 9, 5, 2, 1]  # the largest first
