"""Every public function and method takes arrays and tensors alike, and refuses what would give a wrong number."""

import inspect
import itertools
import math

import numpy as np
import pandas
import pytest
import torch
from helpers import fails

from isobench import calibration, metrics
from isobench.calibration import Centering, IsoBN, Whitening
from isobench.calibration.base import overrides_hook
from isobench.metrics.task import evaluate_predictions

H = np.random.default_rng(0).normal(size=(40, 8)) * np.arange(1, 9) + 2
LABELS = np.arange(40) % 3


VARIANTS = {
    "float64": H, "float32": H.astype(np.float32), "float16": H.astype(np.float16), "bits": H > 2,
    "whole numbers": (10 * H).astype(np.int32), "unsigned numbers": (10 * H + 300).astype(np.uint16),
    "reversed": H[::-1, ::-1], "read-only": H.copy(), "other byte order": H.astype(">f8"),
}  # fmt: skip
VARIANTS["read-only"].setflags(write=False)
OF_CLASSES = (
    "silhouette silhouette_values class_summary fisher_score best_threshold_accuracy threshold_accuracies"
).split()
ARGUMENTS = {  # after the vectors
    **dict.fromkeys(OF_CLASSES, lambda h: [like(LABELS, h)]),
    "alignment": lambda h: [like(H, h)],
    "all_but_the_top": lambda h: [2],
    "explained_variance": lambda h: [[1, 2]],
    "local_isotropy": lambda h: [2],
    "mask_tokens": lambda h: [like(LABELS, h), like(LABELS == 1, h)],
    "weighted_isotropy": lambda h: [like(LABELS + 1, h)],
}
OTHERS = {
    "IsotropyAccumulator": lambda h: metrics.IsotropyAccumulator(8).update(h).compute(),
    "correlation_of": lambda h: metrics.correlation_of(h[:8]),
}
NOT_OF_VECTORS = {"clusters_of", "Chain", "Link"}
PUBLIC = {name: getattr(module, name) for module in (metrics, calibration) for name in module.__all__}
METHODS = [n for n, f in PUBLIC.items() if inspect.isclass(f) and issubclass(f, calibration.Calibration)]
FUNCTIONS = sorted(set(PUBLIC) - {*METHODS, *NOT_OF_VECTORS})
slow = {"local_isotropy": pytest.mark.slow}  # imports scikit-learn
FUNCTIONS = [pytest.param(name, marks=slow.get(name, ())) for name in FUNCTIONS]


def like(array, h):
    array = array[: len(h)]
    return torch.from_numpy(array) if isinstance(h, torch.Tensor) else array


def call(name, h):
    torch.manual_seed(0)  # Flow's weights
    if name in METHODS:
        return PUBLIC[name](8)(h)
    return OTHERS[name](h) if name in OTHERS else PUBLIC[name](h, *ARGUMENTS.get(name, lambda h: [])(h))


def numbers(result):
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else [result]
    return np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in parts])


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_array_gives_what_a_tensor_gives_and_is_not_changed(name, variant):
    array = VARIANTS[variant]
    before = array.copy()
    native = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("="))
    found, expected = call(name, array), call(name, torch.from_numpy(native))
    np.testing.assert_array_equal(numbers(found), numbers(expected))
    assert (before == array).all()


WRONG_KINDS = {
    "complex": H + 1j, "text": H.astype(str), "masked": np.ma.masked_array(H, H > 2), "list": H.tolist(),
    "DataFrame": pandas.DataFrame(H), "complex tensor": torch.tensor(H + 1j),
}  # fmt: skip


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_what_is_no_matrix_of_real_numbers_is_refused(name):
    for x in (H[0], H[None], *([] if name in METHODS else [H[:0], H[:, :0]])):
        for vectors in (x, torch.from_numpy(x)):
            with pytest.raises(ValueError):  # noqa: PT011
                call(name, vectors)
    for x in () if name in OTHERS else WRONG_KINDS.values():
        with pytest.raises(TypeError):
            call(name, x)


def test_what_would_give_a_wrong_number_is_refused():
    for call in (
        lambda: metrics.explained_variance(H, -1), lambda: metrics.explained_variance(H, [1, -2]),
        lambda: metrics.explained_variance(H, 1.5), lambda: metrics.local_isotropy(H, 1.5),
        lambda: metrics.correlation_of(H), lambda: metrics.clusters_of(np.full((3, 3), math.nan), 0.5),
        lambda: metrics.isotropy_summary(itertools.repeat(iter([H])).__next__),  # a second pass has no rows
        lambda: metrics.alignment(H, H[:39]), lambda: metrics.alignment(H, H, 0), lambda: metrics.uniformity(H, -1),
        lambda: metrics.alpha_req(H, 5, 5), lambda: metrics.mask_tokens(H, LABELS, LABELS, ["last"]),
        lambda: metrics.mask_tokens(H, LABELS[:39], LABELS), lambda: metrics.trimmed_isoscore(H, 0.5),
        lambda: metrics.isoscore(H, 2.0), lambda: metrics.isoscore(H, 0.5, torch.eye(3)),
        lambda: metrics.IsotropyAccumulator(3).merge(metrics.IsotropyAccumulator(4)),
        lambda: evaluate_predictions(["spearman"], [1, 2, 3], [1, 2]),
        lambda: evaluate_predictions(["pearson"], 1j * LABELS, LABELS),
    ):  # fmt: skip
        with fails():
            call()


BY_COORDINATE = {"fisher_score", "threshold_accuracies", "center", "center_scaled", "correlation_of"}


@pytest.mark.parametrize("name", [f for f in FUNCTIONS if f.values != ("mask_tokens",)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_of_vectors_that_are_not_finite_nothing_is_a_number(name, value):
    h = H.copy()
    h[2, 2] = value
    result = call(name, h)
    assert not np.isfinite(result[..., 2] if name in BY_COORDINATE else numbers(result)).any(), result


BAD_SETTINGS = {  # settings that would otherwise train something, and not what they say
    "IsoBN": [{"gamma": "max"}, {"momentum": 0.0}, {"eps": 0.0}, {"beta": math.nan}, {"dim": 2.5}],
    "BatchNorm": [{"momentum": 0}],
    "FixedNorm": [{"kind": "max"}, {"eps": 0}],
    "Whitening": [{"k": 2}, {"shrinkage": 2}, {"epsilon": -0.1}, {"epsilon": True}, {"form": "pca", "k": 9}],
    "Centering": [{"momentum": 0}, {"centered_projection": "false"}, {"D": 2}, {"kind": "all_but_the_top", "D": 9}],
    "CosineRegularization": [{"strength": -1}],
    "SpectrumControl": [{"c1": -1}, {"c2": 2}, {"start_at_target": "false"}, {"reparametrize": True}],
    "GradientNorm": [{"eps": 0}, {"alpha": math.nan}],
    "Decorrelation": [{"strength": -0.1}, {"strength": True}, {"covariance_weight": -1}, {"gamma": -1}],
    "Uniformity": [{"strength": -math.inf}, {"t": 0}],
    "SIGReg": [{"strength": math.nan}, {"directions": 0}, {"points": 16}, {"t_max": 0}],
    "IStar": [{"strength": True}, {"zeta": 1.01}, {"zeta": -1e-9}, {"sample": 1}, {"dim": 1}],
    "Flow": [{"permutation": "none"}, {"lr": 0}, {"levels": 4}],
}  # fmt: skip


@pytest.mark.parametrize("method", BAD_SETTINGS)
def test_a_setting_that_cannot_be_is_refused(method):
    for settings in BAD_SETTINGS[method]:
        with pytest.raises(ValueError):  # noqa: PT011
            getattr(calibration, method)(**{"dim": 8, **settings})


def test_an_empty_batch_is_refused():
    for method in (IsoBN(8), Centering(8, kind="center"), Whitening(8, form="zca")):
        with pytest.raises(ValueError):  # noqa: PT011
            method(torch.ones(0, 8))


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_embeddings_of_another_width_are_refused(name, width):
    method = getattr(calibration, name)(8)
    calls = [method, lambda h: method.prepare([h])] if overrides_hook(method, "prepare") else [method]
    for call in calls:
        with pytest.raises(ValueError):  # noqa: PT011
            call(torch.ones(4, width))
