"""No training step reads a value of its device, which a GPU would wait for, or mixes devices.

Steps run on torch's ``meta`` device, which stands for a GPU: its tensors have no values, so reading one fails.
"""

import pytest
import torch
from helpers import ROOT, build_parts
from pytorch_lightning.utilities import move_data_to_device

CALIBRATIONS = sorted(file.stem for file in (ROOT / "conf" / "calibration").glob("*.yaml"))
FAST = ("none", "isobn_paper", "istar", "spectrum_polynomial", "whitening_zca")  # one of each kind, in `make check`
CALIBRATIONS = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CALIBRATIONS]


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    """Let torch's autocast and generators accept the ``meta`` device as they accept a GPU."""
    autocast, generator = torch.autocast, torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator("cpu"))
    monkeypatch.setattr(torch, "autocast", lambda kind, *a, **k: autocast("cpu" if kind == "meta" else kind, *a, **k))


def train_on_device(parts):
    """Train for a step on the CPU, in which a flow initialises itself, and for one on the watched device."""
    module, batch = parts.module, next(iter(parts.loaders.train))
    module.log = module._raise_if_non_finite = lambda *_, **__: None  # read now and then, and at an epoch's end
    for device in ("cpu", "meta"):
        module.to(device).train()
        loss = module.training_step(move_data_to_device(batch, torch.device(device)), 0)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    assert loss.device.type == "meta"


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_a_classifiers_step_never_waits(small, calibration):
    train_on_device(build_parts(*small, f"calibration={calibration}"))


@pytest.mark.slow
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_a_translations_step_never_waits(tiny_translation, calibration):
    train_on_device(build_parts(*tiny_translation, f"calibration={calibration}"))
