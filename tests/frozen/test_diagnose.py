"""A diagnosis: its measures are those of isobench.metrics over all rows; effects and intervals by numpy and scipy."""

import json
import math
import tracemalloc

import numpy as np
import pytest
import torch
from helpers import fails
from scipy import stats
from scipy.spatial.distance import pdist

from isobench import metrics
from isobench.frozen import diagnose as module
from isobench.frozen import effects
from isobench.frozen.diagnose import diagnose
from isobench.frozen.matrix import read_vectors
from isobench.statistics.changes import compare_paired, measure_spread

N, D = 240, 6


def make_vectors(seed=0, n=N, d=D):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.arange(d, 0, -1) + 2.0


def index(diagnosis):
    return {finding.measure: finding.value for finding in diagnosis.findings}


def mean_cosine(x):
    return np.mean(1 - pdist(x, "cosine"))


@pytest.fixture(scope="module")
def found():
    x = make_vectors()
    x[7] = x[3]
    x[:, 1] *= 9
    return x, diagnose(x)


def test_measures_of_all_vectors(found):
    x, diagnosis = found
    centred, variances, lengths = x - x.mean(0), x.var(0), np.linalg.norm(x, axis=1)
    i1, i2 = metrics.partition_isotropy(x)
    expected = {
        "EV1": metrics.explained_variance(x, 1), "EV3": metrics.explained_variance(x, 3), "I1": i1, "I2": i2,
        "IsoScore": metrics.isoscore(x), "IsoScore, trimmed": metrics.trimmed_isoscore(x),
        "average cosine": metrics.average_cosine(x), "average cosine, centred": metrics.average_cosine(centred),
        "mean ratio": metrics.mean_ratio(x), "effective rank": metrics.effective_rank(x),
        "RankMe": metrics.rankme(x), "alpha-ReQ": metrics.alpha_req(x), "uniformity": metrics.uniformity(x),
        "largest coordinate": metrics.coordinate_share(x), "numerical rank": D, "duplicates": 1, "zero rows": 0,
        "outlier coordinates": 1, "median norm": np.median(lengths),
        "spread of norms": stats.iqr(lengths) / np.median(lengths),
    }  # fmt: skip
    assert index(diagnosis) == pytest.approx(expected, rel=1e-9)
    squares = np.linalg.svd(centred, compute_uv=False) ** 2
    np.testing.assert_allclose(diagnosis.variances, squares / squares.sum(), rtol=1e-9)
    np.testing.assert_allclose(diagnosis.coordinates, variances / variances.sum(), rtol=1e-9)
    np.testing.assert_allclose(diagnosis.norms, np.sort(lengths), rtol=1e-9)


@pytest.mark.slow
def test_batches_rows_left_out_and_types_change_no_number(found, monkeypatch):
    x, diagnosis = found
    holes = np.insert(x, [0, 100, N], [[np.nan] * D, [1, np.inf, 1, 1, 1, 1], [-np.inf] * D], axis=0)
    monkeypatch.setattr("isobench.frozen.matrix.BATCH_NUMBERS", 7 * D)
    again = diagnose(torch.from_numpy(holes))
    assert index(again) == pytest.approx(index(diagnosis), rel=1e-9)
    assert again.rows == N
    assert "3 rows with NaN or infinity left out, first row 0" in again.notes[0]
    whole = np.round(x * 10)
    numbers = [index(diagnose(whole.astype(kind)))["EV1"] for kind in (np.int64, np.int16, np.float16, ">f4")]
    assert numbers == pytest.approx([index(diagnose(whole))["EV1"]] * 4, rel=1e-12)


@pytest.mark.slow
def test_advice_on_whitening_counts_the_labels_of_all_rows(found, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 50)
    (advice,) = [note for note in diagnose(found[0], labels=np.arange(N) % 2).notes if "labels a class" in note]
    assert f"These are {N // 2} labels a class." in advice


@pytest.mark.slow
def test_methods_are_fitted_on_one_half_and_measured_on_the_other():
    x, y = make_vectors(1), np.random.default_rng(2).integers(0, 3, N)
    x[:, 0] += 12 * y
    diagnosis = diagnose(x, y)
    rows = {effect.method: effect for effect in diagnosis.effects}
    folds = effects.assign_folds(y, 2, np.random.default_rng(0))
    half, other = x[folds == 0], x[folds == 1]
    values, vectors = np.linalg.eigh(np.cov(half.T, bias=True))
    white = (other - half.mean(0)) @ vectors / np.sqrt(values) @ vectors.T
    epsilon = 0.1 * half.var(0).mean()
    soft = (other - half.mean(0)) @ vectors / np.sqrt(values + epsilon) @ vectors.T
    top = half.mean(0), vectors[:, -1:]
    expected = {
        "none": other,
        "centre": other - half.mean(0),
        "unit length": other / np.linalg.norm(other, axis=1)[:, None],
        "all-but-the-top": (other - top[0]) - (other - top[0]) @ top[1] @ top[1].T,
        "ZCA whitening": white,
        "soft ZCA, 0.1": soft,
        "PCA whitening": (white @ vectors)[:, -2:],
    }
    for name, after in expected.items():
        eigenvalues = np.linalg.eigvalsh(np.cov(after.T))
        width = after.shape[1]
        score = (eigenvalues.sum() ** 2 / (eigenvalues**2).sum() - 1) / (width - 1)
        found = (rows[name].isoscore, rows[name].ev1, rows[name].average_cosine)
        assert found == pytest.approx((score, eigenvalues.max() / eigenvalues.sum(), mean_cosine(after)), rel=1e-4)
    assert diagnosis.score == "accuracy"
    assert rows["none"].change == 0
    assert np.isnan([rows["none"].low, rows["none"].high]).all()
    assert rows["centre"].change == 0  # an intercept does the same
    assert rows["none"].score > 0.5
    for effect in diagnosis.effects[1:]:
        assert effect.change == pytest.approx(effect.score - rows["none"].score)
        assert effect.low <= effect.change <= effect.high
        assert effect.high - effect.low > 0.01


def test_the_interval_of_paired_answers_is_bonetts_and_prices():
    differences = np.repeat([1, -1, 0], [6, 2, 92])
    better, worse = 7 / 102, 3 / 102
    margin = 1.959964 * np.sqrt((better + worse - (better - worse) ** 2) / 102)
    expected = 0.04, better - worse - margin, better - worse + margin
    assert compare_paired(differences) == pytest.approx(expected, abs=1e-7)
    change, low, high = compare_paired(np.zeros(600))
    assert change == 0
    assert -0.006 < low < -0.003  # about three rows of 600
    assert high == -low


def test_pairs_alignment_and_the_order_of_cosines():
    x, rng = make_vectors(5), np.random.default_rng(6)
    rows = rng.permutation(N).reshape(-1, 2)
    cosines = np.array([x[a] @ x[b] / np.linalg.norm(x[a]) / np.linalg.norm(x[b]) for a, b in rows])
    scores = np.round(cosines + rng.normal(size=len(rows)) / 5, 1)
    diagnosis = diagnose(x, pairs=(rows, scores))
    assert index(diagnosis)["Spearman"] == pytest.approx(stats.spearmanr(cosines, scores).statistic, abs=1e-12)
    high = scores >= scores.min() + 0.8 * (scores.max() - scores.min())
    assert index(diagnosis)["alignment"] == pytest.approx(np.mean(2 - 2 * cosines[high]), rel=1e-9)
    tested = np.random.default_rng(0).permutation(len(rows))[: len(rows) // 2]
    fitted = np.setdiff1d(np.arange(N), rows[tested])
    by_name = {effect.method: effect for effect in diagnosis.effects}
    assert by_name["none"].score == pytest.approx(
        stats.spearmanr(cosines[tested], scores[tested]).statistic, abs=1e-12
    )
    moved = x - x[fitted].mean(0)
    after = [moved[a] @ moved[b] / np.linalg.norm(moved[a]) / np.linalg.norm(moved[b]) for a, b in rows[tested]]
    assert by_name["centre"].score == pytest.approx(stats.spearmanr(after, scores[tested]).statistic, abs=1e-6)
    assert by_name["centre"].low < by_name["centre"].change < by_name["centre"].high
    assert (by_name["centre"].components, by_name["PCA whitening"].components) == (x.shape[1], x.shape[1] // 3)
    assert diagnosis.score == "spearman"


def test_pairs_whose_scores_differ_only_by_rows_left_out_are_refused():
    x = make_vectors(5)
    x[:4] = np.nan
    with fails():
        diagnose(x, pairs=(np.arange(20).reshape(10, 2), np.repeat([2.0, 1], [2, 8])))


def test_zipfian_methods_weigh_the_rows_of_the_fitted_half():
    x, counts = make_vectors(8), np.random.default_rng(9).integers(0, 50, N)
    rows = {effect.method: effect for effect in diagnose(x, counts=counts, texts=False).effects}
    folds = effects.assign_folds(np.zeros(N, int), 2, np.random.default_rng(0))
    p = counts[folds == 0] / counts[folds == 0].sum()
    moved = x[folds == 1] - p @ x[folds == 0]
    assert rows["Zipfian centring"].average_cosine == pytest.approx(mean_cosine(moved), rel=1e-9)
    assert rows["Zipfian whitening"].isoscore > rows["none"].isoscore


def test_a_matrix_without_full_rank_is_named_and_gives_numbers():
    x = make_vectors(10)
    x[:, 4] = 1.5
    x[:, 5] = x[:, :5].sum(1)
    diagnosis = diagnose(x.astype(np.float32))
    assert index(diagnosis)["numerical rank"] == 4
    white = next(effect for effect in diagnosis.effects if effect.method == "ZCA whitening")
    assert white.isoscore == pytest.approx((4 - 1) / 5, abs=0.08)  # four of six directions, evenly
    undefined = [finding for finding in diagnosis.findings if not math.isfinite(finding.value)]
    assert [finding.measure for finding in undefined] == ["alpha-ReQ"]  # a line needs two ranks from the fourth on
    wide = diagnose(make_vectors(11, 5, 40))
    assert index(wide)["numerical rank"] == 4


@pytest.mark.parametrize(
    "x",
    [
        np.full((4, 2), np.nan), np.ones((4, 2)), np.array([[1e200, 0], [0, 1e200], [1.0, 1]]),
        np.array([[np.nan, 1], [np.inf, 1], [1, 1], [2, 1], [-np.inf, 1]]),
    ],
)  # fmt: skip
def test_vectors_that_can_not_be_diagnosed(x):
    with fails():
        diagnose(x)


@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (3, 5), (12, 1)])
def test_tiny_matrices(shape):
    diagnosis = diagnose(make_vectors(12, *shape))
    assert json.loads(json.dumps(diagnosis.to_json(), allow_nan=False))["rows"] == shape[0]


def test_no_row_is_trained_on_and_tested():
    x, labels = make_vectors(13, 80), np.random.default_rng(0).integers(2, size=80)
    once, often = (diagnose(np.repeat(x, count, 0), np.repeat(labels, count)) for count in (1, 5))
    assert index(often)["probe accuracy"] == index(once)["probe accuracy"]


@pytest.mark.slow
def test_duplicates_zero_rows_and_negative_zeros(monkeypatch):
    x = np.repeat(make_vectors(13), 2, axis=0)
    x[:3] = 0
    x[1] = -0.0
    assert index(diagnose(x))["zero rows"] == 3
    assert index(diagnose(x))["duplicates"] == N  # 0 to 2 are equal, and 3 lost its double
    signs = np.where(np.random.default_rng(0).permutation(2**10)[:, None] >> np.arange(10) & 1, 1.0, -1.0)
    assert index(diagnose(signs))["duplicates"] == 0
    monkeypatch.setattr("isobench.metrics.duplicates.MOST_HASHES", 100)
    sampled = diagnose(x)
    assert index(sampled)["duplicates"] == pytest.approx(N, rel=0.5)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("isobench.frozen.matrix.BATCH_NUMBERS", 1 << 16)
    peaks = []
    for rows in (40_000, 160_000):
        np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(rows, 16)).astype(np.float32))
        tracemalloc.start()
        module.Scan(read_vectors(tmp_path / "x.npy")[0])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 120_000 * 40  # hashes and a mark for each row, and not the rows' 64 bytes


def test_a_coordinate_that_numbers_the_rows_is_named():
    x = make_vectors()
    x[:, 2] = np.random.default_rng(1).permutation(N)
    assert [note for note in diagnose(x).notes if "number the rows" in note and "(from 0): 2." in note]
    for other in (make_vectors(), np.arange(N * D).reshape(N, D)):  # the second is a matrix of whole numbers
        assert not [note for note in diagnose(other).notes if "number the rows" in note]


@pytest.mark.parametrize("factor", [1e-12, 1e-30, 1e100])
def test_what_has_no_unit_does_not_depend_on_the_scale(factor):
    x, rng = make_vectors(n=80), np.random.default_rng(1)
    pairs = rng.permutation(80).reshape(40, 2), rng.normal(size=40)
    whole, scaled = diagnose(x, pairs=pairs), diagnose(x * factor, pairs=pairs)
    with_unit = ("I1", "I2", "median norm")
    for measure, value in index(whole).items():
        assert measure in with_unit or index(scaled)[measure] == pytest.approx(value, rel=1e-6, abs=1e-9), measure
    for one, other in zip(whole.effects, scaled.effects, strict=True):
        assert other.score == pytest.approx(one.score) or one.method == "IsoBN"  # whose epsilon has the unit
    for one, other in zip(whole.levels, scaled.levels, strict=True):
        assert other.one_percent == pytest.approx(one.one_percent, abs=1e-9) or one.method == "IsoBN"


def test_own_methods_and_their_mistakes():
    own = {"_target_": "isobench.calibration.Centering", "name": "c", "version": 1, "placement": "after_pooler",
           "target": "head", "kind": "center_scaled"}  # fmt: skip
    assert "mine" in [effect.method for effect in diagnose(make_vectors(), methods={"mine": own}).effects]
    with fails():
        diagnose(make_vectors(), methods={"mine": own | {"_target_": "isobench.calibration.Flow"}})


def test_intervals_hold_what_refits_differ_in():
    changes = [0.1, 0.3, 0.2, 0.2]
    spread = stats.t.ppf(0.975, 3) * np.std(changes, ddof=1)
    assert measure_spread(changes) == pytest.approx(spread)
    assert measure_spread([]) == 0
    differences = np.repeat([1, -1, 0], [6, 2, 92])
    (_, low, high), (_, least, most) = compare_paired(differences), compare_paired(differences, spread)
    assert (most - least) / 2 == pytest.approx(math.hypot((high - low) / 2, spread))


@pytest.mark.slow
def test_a_method_that_hangs_on_its_rows_has_a_wide_interval():
    """Let all-but-the-top choose by chance between two directions of equal variance, one of which has the classes."""
    rng = np.random.default_rng(0)
    widths = []
    for second in (5.0, 1.0):
        x, y = rng.normal(size=(600, 8)), np.arange(600) % 2
        x[:, 0], x[:, 1] = 5 * (2 * y - 1) + rng.normal(size=600) / 9, second * rng.normal(size=600)
        row = next(effect for effect in diagnose(x, y).effects if effect.method == "all-but-the-top")
        widths.append(row.high - row.low)
    assert widths[0] > 3 * widths[1]


def test_a_dominating_direction_that_is_no_axis_makes_no_coordinate_an_outlier():
    rng = np.random.default_rng(1)
    direction = rng.normal(size=64)
    x = rng.normal(size=(400, 64)) / 9 + rng.normal(size=(400, 1)) * direction
    assert (x.var(0) > 5 * x.var(0).mean()).any()
    assert index(diagnose(x))["outlier coordinates"] == 0
    x[:, 3] += 40 * rng.normal(size=400)  # an axis
    assert index(diagnose(x))["outlier coordinates"] == 1


@pytest.mark.slow
def test_a_method_made_for_another_scale_that_changes_nothing_is_named():
    x = np.random.default_rng(0).normal(size=(200, 6)) * [5, 1, 1, 1, 1, 1]
    labels = np.arange(200) % 2
    quiet, loud = (" ".join(diagnose(x * scale, labels=labels).notes) for scale in (1e-6, 1.0))
    assert "IsoBN leaves these vectors as they are" in quiet
    assert "leaves these vectors" not in loud
