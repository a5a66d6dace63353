"""Two spaces of the same texts: each number again from its definition, and the verdict on a collapsed one."""

import json

import numpy as np
import pytest
from helpers import check_done, check_refused, fails
from scipy import stats
from scipy.spatial.distance import cdist

from isobench.frozen.compare import compare_spaces
from isobench.metrics.similarity import linear_cka

RNG = np.random.default_rng(0)
A = RNG.normal(size=(90, 8))
B = A @ RNG.normal(size=(8, 5)) + RNG.normal(size=(90, 5)) + 1


def test_each_number_is_that_of_its_definition():
    found = compare_spaces(A, B)
    grams = [x @ x.T for x in (A, B)]
    centre = np.eye(90) - 1 / 90
    k, m = (centre @ gram @ centre for gram in grams)
    assert found.cka == pytest.approx((k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum()), rel=1e-9)
    cosines = [1 - cdist(x, x, "cosine") for x in (A, B)]
    shared, agreement = [], []
    for row in range(90):
        others = np.delete(np.arange(90), row)
        near = [set(others[np.argsort(-c[row, others])[:10]]) for c in cosines]
        shared.append(len(near[0] & near[1]) / 10)
        values = [np.append(c[row, others], 2) for c in cosines]  # itself is first in both
        agreement.append(stats.spearmanr(*values).statistic)
    assert found.neighbours == pytest.approx((np.mean(shared), 10 / 89))
    assert found.agreement == pytest.approx(np.mean(agreement), abs=1e-9)
    assert [row for row, _, _ in found.moved] == np.argsort(agreement)[:10].tolist()
    pairs = cosines[1][np.triu_indices(90, 1)]
    assert found.cosines[1] == pytest.approx(np.quantile(pairs, (0.05, 0.5, 0.95)).tolist(), abs=0.02)


def test_what_rotates_and_scales_changes_nothing():
    rotation = np.linalg.qr(RNG.normal(size=(8, 8)))[0]
    found = compare_spaces(A, 3 * A @ rotation)
    assert (found.cka, found.neighbours[0], found.agreement) == pytest.approx((1, 1, 1))
    assert linear_cka(1e-200 * A, 1e200 * B) == pytest.approx(linear_cka(A, B))


@pytest.mark.parametrize("collapsed", [np.ones((90, 4)), RNG.normal(size=(90, 4)) / 50 + 1])
def test_a_collapsed_space_is_named(collapsed):
    assert "B has collapsed" in compare_spaces(A, collapsed).verdict
    assert "collapsed" not in compare_spaces(A, RNG.normal(size=(90, 4))).verdict
    assert "collapsed" not in compare_spaces(A, A).verdict
    json.dumps(compare_spaces(A, collapsed).to_json(), allow_nan=False)


def test_rows_that_can_not_be_compared():
    holes = A.copy()
    holes[4] = np.nan
    found = compare_spaces(holes, B)
    assert found.rows == 89
    assert "row 4" in found.notes[0]
    assert 4 not in [row for row, _, _ in found.moved]
    for a, b in ((A, B[1:]), (A[:2], B[:2]), (np.full((9, 2), np.nan), A[:9])):
        with fails():
            compare_spaces(a, b)
    one = compare_spaces(A[:5, :1], B[:5, :1])
    assert one.rows == 5


def test_the_command(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", A)
    np.save("b.npy", B)
    out, _ = check_done(cli("diagnose", "a.npy", "--against", "b.npy"))
    assert "linear CKA" in out
    assert json.loads(cli("diagnose", "a.npy", "--against", "b.npy", "--json")[1])["rows"] == 90
    for more in (["--labels", "y.npy"], ["--to", "here"], ["calibration=center"]):
        check_refused(cli("diagnose", "a.npy", "--against", "b.npy", *more))
