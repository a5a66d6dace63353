"""Wrong calls of methods are refused, in any PyTorch program."""

import math

import pytest
import torch

from isobench import calibration
from isobench.calibration import Centering, IsoBN, Whitening
from isobench.calibration.base import overrides_hook

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


@pytest.mark.parametrize("shape", [(8,), (1, 4, 8), (0, 8)])
def test_a_batch_that_is_none_is_refused(shape):
    for method in (IsoBN(8), Centering(8, kind="center"), Whitening(8, form="zca")):
        with pytest.raises(ValueError):  # noqa: PT011
            method(torch.ones(shape))


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_embeddings_of_another_width_are_refused(name, width):
    method = getattr(calibration, name)(8)
    calls = [method, lambda h: method.prepare([h])] if overrides_hook(method, "prepare") else [method]
    for call in calls:
        with pytest.raises(ValueError):  # noqa: PT011
            call(torch.ones(4, width))
