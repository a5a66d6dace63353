"""Similarities of pairs of vectors against scipy, row by row, with ties and vectors without a direction."""

import numpy as np
import pytest
import torch
from scipy import stats

from isobench_papers.mteb.similarities import SIMILARITIES


@pytest.fixture
def pairs():
    rng = np.random.default_rng(3)
    left, right = rng.normal(2, [1, 5, 0.1, 3, 1, 1, 2], (2, 30, 7))
    left[4, 2] = left[4, 5]  # two equal coordinates
    right[9] = np.round(right[9])  # several
    return left, right


@pytest.mark.parametrize(
    ("name", "by_definition"),
    [
        ("cosine", lambda x, y: x @ y / np.sqrt((x @ x) * (y @ y))),
        ("inner", lambda x, y: sum(a * b for a, b in zip(x, y, strict=True))),
        ("spearman", lambda x, y: stats.spearmanr(x, y).statistic),
        ("l1", lambda x, y: -sum(abs(a - b) for a, b in zip(x, y, strict=True))),
    ],
)
def test_each_is_its_definition(pairs, name, by_definition):
    left, right = pairs
    found = SIMILARITIES[name](torch.tensor(left), torch.tensor(right))
    expected = [by_definition(x, y) for x, y in zip(left, right, strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_a_vector_without_direction_or_order_is_similar_to_nothing():
    other = torch.arange(5.0)[None].double()
    for name, vector in (("cosine", 0 * other), ("spearman", 0 * other + 2), ("l1", other)):
        assert SIMILARITIES[name](vector, other).item() == 0
