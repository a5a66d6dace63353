"""Check that wrong calls of methods raise an error of one line that names the setting, in any PyTorch program."""

import math
import warnings

import pytest
import torch

from isobench import calibration
from isobench.calibration import (
    Centering,
    Flow,
    IsoBN,
    IStar,
    Whitening,
)
from isobench.calibration.base import overrides_hook

BAD_SETTINGS = [
    ("IsoBN", "gamma", ["max"]),
    ("IsoBN", "rescale", ["root"]),
    ("IsoBN", "momentum", [0.0]),
    ("IsoBN", "eps", [0.0]),
    ("IsoBN", "beta", [math.nan]),
    ("IsoBN", "subtract_mean", ["yes"]),
    ("BatchNorm", "momentum", [0]),
    ("FixedNorm", "kind", ["max"]),
    ("FixedNorm", "eps", [0]),
    ("Whitening", "form", ["svd"]),
    ("Whitening", "k", [2]),
    ("Whitening", "shrinkage", [2]),
    ("Whitening", "epsilon", [-0.1, math.nan, math.inf, "small", True]),
    ("Whitening", "keep_norm", ["yes"]),
    ("Centering", "kind", ["middle"]),
    ("Centering", "momentum", [0]),
    ("Centering", "centered_projection", ["false"]),
    ("CosineRegularization", "strength", [-1]),
    ("SpectrumControl", "decay", ["linear"]),
    ("SpectrumControl", "c1", [-1]),
    ("SpectrumControl", "c2", [2]),  # has no effect with decay=polynomial
    ("SpectrumControl", "start_at_target", ["false", 2, None]),
    ("SpectrumControl", "reparametrize", [-1, True, "yes", math.inf]),
    ("GradientNorm", "eps", [0]),
    ("GradientNorm", "alpha", [math.nan]),
    ("Decorrelation", "strength", [-0.1, "strong", math.inf, True, None]),
    ("Decorrelation", "variance_weight", [math.nan]),
    ("Decorrelation", "covariance_weight", [-1]),
    ("Decorrelation", "gamma", [-1]),
    ("Decorrelation", "epsilon", [0, 10**400]),
    ("Uniformity", "strength", ["strong", -math.inf]),
    ("Uniformity", "t", [0, math.nan]),
    ("SIGReg", "strength", ["strong", math.nan]),
    ("SIGReg", "directions", [0, 2.5]),
    ("SIGReg", "points", [16, True]),
    ("SIGReg", "t_max", [0]),
    ("IStar", "strength", ["much", math.inf, math.nan, True, None]),
    ("IStar", "zeta", [1.01, -1e-9, math.nan]),
    ("IStar", "scope", ["all", ["cls"]]),
    ("IStar", "sample", [1, 0, 3.5]),
    ("Flow", "coupling", ["cubic"]),
    ("Flow", "permutation", ["none"]),
    ("Flow", "lr", [0]),
]


@pytest.mark.parametrize(
    ("method", "setting", "value"), [(method, name, value) for method, name, bad in BAD_SETTINGS for value in bad]
)
def test_a_setting_that_cannot_be_is_named(method, setting, value):
    with pytest.raises(ValueError, match=setting) as error:
        getattr(calibration, method)(8, **{setting: value})
    assert "\n" not in str(error.value)


def test_settings_that_do_not_fit_the_width_or_each_other_are_refused():
    for settings, message in (
        ({"k": 5, "form": "pca"}, "k=5 must be between"),
        ({"form": "zca", "k": 2}, "form=pca"),
    ):
        with pytest.raises(ValueError, match=message):
            Whitening(4, **settings)
    with pytest.raises(ValueError, match="8 dimensions can't be halved 4 times"):
        Flow(8, levels=4)
    with pytest.raises(ValueError, match="D must be between 0 and 4, not 5"):
        Centering(4, "all_but_the_top", D=5)
    for settings in ({"D": 2}, {"centered_projection": False}):
        with pytest.raises(ValueError, match="have no effect with kind=center: leave them out"):
            Centering(4, **settings)
    with pytest.raises(ValueError, match="at least 2, not 1"):
        IStar(1)
    for dim in (0, -1, "8", 2.5):
        with pytest.raises(ValueError, match="dim must be a whole number, at least 1"):
            IsoBN(dim)


@pytest.mark.parametrize("shape", [(8,), (1, 4, 8), (0, 8)])
def test_a_batch_that_is_none_is_refused(shape):
    for method in (IsoBN(8), Centering(8, kind="center"), Whitening(8, form="zca")):
        with pytest.raises(ValueError, match="at least one row"):
            method(torch.ones(shape))


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("name", sorted({name for name, _, _ in BAD_SETTINGS}))
def test_embeddings_of_another_width_are_refused(name, width):
    method = getattr(calibration, name)(8)
    calls = [method, lambda h: method.prepare([h])] if overrides_hook(method, "prepare") else [method]
    for call in calls:
        with pytest.raises(ValueError, match=f"{name} takes embeddings of width 8, not {width}"):
            call(torch.ones(4, width))


@pytest.mark.parametrize("name", ["FixedNorm", "IStar"])
def test_a_method_is_prepared_with_arrays_too_and_empty_batches_are_left_out(name):
    h = torch.randn(20, 4)
    method, other = getattr(calibration, name)(4), getattr(calibration, name)(4)
    method.prepare([h[:0], h[:7].numpy(), h[:0], h[7:].numpy()])
    other.prepare([h[:7], h[7:]])
    assert all(map(torch.equal, method.state_dict().values(), other.state_dict().values()))
    with pytest.raises(ValueError, match="at least one row"):
        method.prepare(h)  # its rows are no batches


@pytest.mark.parametrize(
    "h", [torch.randn(8, 4), torch.tensor([[1.0, -1, 1, -1], [-1, 1, -1, 1]])], ids=["", "mean 0"]
)
@pytest.mark.parametrize("name", ["IsoBN", "Whitening", "Centering", "BatchNorm", "FixedNorm"])
def test_a_method_without_statistics_says_once_that_it_changes_nothing(name, h):
    method = getattr(calibration, name)(4).eval()
    with pytest.warns(UserWarning, match=f"{name} has seen no embeddings"):
        method(h)
    for prepared in (method, trained := getattr(calibration, name)(4), getattr(calibration, name)(4)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if prepared is trained:
                prepared.prepare([h])
                prepared(h)
            prepared.load_state_dict(trained.state_dict())
            prepared.eval()(h)
