"""Measures give the same numbers for a NumPy array as for a tensor, whatever the array's memory looks like."""

import itertools
import math

import numpy as np
import pytest
import torch

from isobench import metrics
from isobench.metrics.generated_text import evaluate_texts
from isobench.metrics.task import evaluate_predictions
from isobench.metrics.weighted import zipf_exponents

H = np.random.default_rng(0).normal(size=(40, 6)) * np.arange(1, 7) + 2
LABELS = np.arange(40) % 3


def read_only(array):
    copy = array.copy()
    copy.setflags(write=False)
    return copy


VARIANTS = {
    "float64": H, "float32": H.astype(np.float32), "float16": H.astype(np.float16),
    "whole numbers": (10 * H).astype(np.int32),
    "columns first": np.asfortranarray(H), "reversed": H[::-1, ::-1], "read-only": read_only(H),
    "other byte order": H.astype(">f8"),
}  # fmt: skip
MEASURES = {
    "explained_variance": lambda h: metrics.explained_variance(h, [1, 2]),
    "isoscore": metrics.isoscore,
    "isoscore of a sample": lambda h: metrics.isoscore(h, 0.5, (h[:6].T @ h[:6])),
    "average_cosine": metrics.average_cosine,
    "cosine_regularization": metrics.cosine_regularization,
    "effective_rank": metrics.effective_rank,
    "mean_ratio": metrics.mean_ratio,
    "partition_isotropy": metrics.partition_isotropy,
    "spectrum": lambda h: metrics.spectrum(h).tolist(),
    "fisher_score": lambda h: metrics.fisher_score(h, as_kind(LABELS, h)).tolist(),
    "correlation_of": lambda h: metrics.correlation_of(h.T @ h).tolist(),
    "local_isotropy": lambda h: list(metrics.local_isotropy(h, 2).values()),
    "accumulator": lambda h: list(metrics.IsotropyAccumulator(6).update(h).compute().values()),
    "coordinate_share": metrics.coordinate_share,
    "silhouette_values": lambda h: metrics.silhouette_values(h, as_kind(LABELS, h)).tolist(),
    "threshold_accuracies": lambda h: metrics.threshold_accuracies(h, as_kind(LABELS, h)).tolist(),
    "weighted_isotropy": lambda h: list(metrics.weighted_isotropy(h, as_kind(LABELS + 1, h)).values()),
    "rankme": metrics.rankme,
    "alpha_req": lambda h: metrics.alpha_req(h, 1),
    "alignment": lambda h: metrics.alignment(h[:20], h[20:]),
    "uniformity": metrics.uniformity,
    "mask_tokens": lambda h: metrics.mask_tokens(
        h, as_kind(LABELS, h), as_kind(LABELS == 1, h), norm_limit=1.2
    ).tolist(),
    "isotropy_summary": lambda h: list(metrics.isotropy_summary(lambda: [h[:10], h[10:]]).values()),
}


def as_kind(array, like):
    return array if isinstance(like, np.ndarray) else torch.from_numpy(array)


@pytest.mark.parametrize("name", [n for n in MEASURES if n != "local_isotropy"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_array_gives_what_a_tensor_gives(name, variant):
    array = VARIANTS[variant]
    tensor = torch.from_numpy(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("=")))
    expected, found = MEASURES[name](tensor), MEASURES[name](array)
    # The products that some lines above make of an array and of a tensor are rounded in its own precision.
    tolerance = {np.float16: 1e-3, np.float32: 1e-4}.get(array.dtype.type, 1e-9)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * 1e-2)


@pytest.mark.slow
def test_local_isotropy_takes_arrays():  # imports scikit-learn
    assert MEASURES["local_isotropy"](H) == MEASURES["local_isotropy"](torch.from_numpy(H))


def test_an_array_is_not_changed():
    before = H.copy()
    for measure in MEASURES.values():
        if measure is not MEASURES["local_isotropy"]:
            measure(H)
    assert (before == H).all()


def test_task_metrics_take_tensors_and_lists():
    labels, predictions = [0, 1, 1, 0], [0, 1, 0, 0]
    for kind in (np.asarray, torch.tensor, list):
        assert evaluate_predictions(["accuracy"], kind(labels), kind(predictions)) == {"accuracy": 0.75}
    assert math.isnan(evaluate_predictions(["pearson"], [1.0, 1.0], [2.0, 3.0])["pearson"])


NO_VECTORS = {
    "one dimension": H[0], "three dimensions": H[None], "no rows": H[:0], "no columns": H[:, :0],
    "complex": H.astype(complex),
}  # fmt: skip
OF_VECTORS = (
    "explained_variance isoscore average_cosine effective_rank mean_ratio partition_isotropy "
    "rankme alpha_req uniformity"
).split()


@pytest.mark.parametrize("name", [*OF_VECTORS, "local_isotropy", "spectrum", "cosine_regularization"])
@pytest.mark.parametrize("kind", NO_VECTORS)
def test_what_is_no_matrix_of_vectors_is_refused(name, kind):
    for x in (NO_VECTORS[kind], torch.from_numpy(NO_VECTORS[kind].copy())):
        with pytest.raises(ValueError, match="isotropy needs"):
            MEASURES[name](x)
    with pytest.raises(TypeError, match="a tensor or NumPy array is needed, not list"):
        MEASURES[name](H.tolist())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_measure_of_vectors_that_are_not_finite_is_nan(value):
    h = H.copy()
    h[3, 2] = value
    for name in OF_VECTORS:
        assert np.isnan(MEASURES[name](h)).all(), name
    with pytest.raises(ValueError, match="needs finite vectors"):
        metrics.local_isotropy(h, 2)


MISTAKES = {
    "k must be a whole number": [
        lambda: metrics.explained_variance(H, -1), lambda: metrics.explained_variance(H, [1, -2]),
        lambda: metrics.explained_variance(H, 1.5), lambda: metrics.explained_variance(H, "3"),
        lambda: metrics.isotropy_summary(lambda: [H], k=[-1]),
    ],
    "dim must be a whole number": [lambda: metrics.IsotropyAccumulator(0), lambda: metrics.IsotropyAccumulator("6")],
    "clusters must be a whole number": [
        lambda: metrics.local_isotropy(H, 1.5), lambda: metrics.local_isotropy(H, "3"),
    ],
    "labels must be finite": [lambda: metrics.fisher_score(H, np.full(40, math.nan))],
    "a square matrix": [lambda: metrics.correlation_of(H), lambda: metrics.clusters_of(H, 0.5)],
    "clusters need at least two dimensions": [
        lambda: metrics.clusters_of(np.eye(1), 0.5), lambda: metrics.clusters_of(np.eye(3), 2),
        lambda: metrics.clusters_of(np.full((3, 3), math.nan), 0.5),
    ],
    "cluster numbers must be": [lambda: metrics.block_diagonal(np.eye(3))],
    r"rows\(\) gave 40 vectors, then 0": [lambda: metrics.isotropy_summary(itertools.repeat(iter([H])).__next__)],
    "names must be a list of metrics": [
        lambda: evaluate_predictions(["acc"], [0, 1], [0, 1]), lambda: evaluate_predictions("f1", [0, 1], [0, 1]),
    ],
    "labels and predictions must both be": [lambda: evaluate_predictions(["spearman"], [1, 2, 3], [1, 2])],
    "is no metric of texts": [lambda: evaluate_texts(["bleurt"], ["a"], ["a"])],
    "a list of texts is needed": [lambda: evaluate_texts(["bleu"], "abc", "abd")],
    "counts must be positive": [lambda: zipf_exponents([3.0, math.nan, 1.0], 1, 3)],
}  # fmt: skip


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_in_a_call_is_named(message):
    for call in MISTAKES[message]:
        with pytest.raises(ValueError, match=message):
            call()
