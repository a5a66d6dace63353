"""No training step reads a value of its device, which a GPU would wait for, or mixes devices.

Steps run on torch's ``meta`` device, which stands for a GPU: its tensors have no values, so reading one fails.
"""

import pytest
import torch
from helpers import ROOT, build_parts, switch_off_packing
from pytorch_lightning.utilities import move_data_to_device

from isobench.calibration import Calibration, Chain, Link
from isobench.training.monitor import build_monitors

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "overhead"),
    [
        (["encoder.pooling=mean"], None),
        (["encoder.pooling=last"], 8),
        (["head=huggingface", "calibration=[batch_norm,isobn_paper]"], None),
        (["encoder.gradient_checkpointing=true", "calibration=cosine", "calibration.target=vocabulary"], None),
        (["calibration=flow", "calibration.coupling=affine", "calibration.permutation=learned"], None),
        (["calibration=spectrum_polynomial", "+calibration.reparametrize=1.0"], None),
        (["calibration=istar", "calibration.scope=tokens"], None),
        (["calibration=istar", "calibration.scope=tokens"], 8),
    ],
)
def test_other_settings_never_wait(small, settings, overhead, monkeypatch):
    if overhead is not None:
        switch_off_packing(monkeypatch, overhead)
    train_on_device(build_parts(*small, *settings))


def test_collecting_embeddings_for_the_isotropy_monitor_never_waits(small):
    parts = build_parts(*small, "calibration=isobn_paper")
    module = parts.module.to("meta").eval()
    (monitor,) = build_monitors(module.cfg)
    monitor.on_validation_epoch_start(None, module)
    module.on_validation_epoch_start()
    with torch.no_grad():
        for index, batch in enumerate(parts.loaders.dev[0]):
            outputs = module.validation_step(move_data_to_device(batch, torch.device("meta")), index)
            monitor.on_validation_batch_end(None, module, outputs, batch, index)
    assert sum(map(len, monitor._batches["embedding"])) == len(parts.loaders.dev[0].dataset)


class Planted(Calibration):
    def forward(self, h):
        if h.device.type == "meta":
            self.act(h)
        return h


@pytest.mark.parametrize(
    "act",
    [
        lambda h: h.sum().item(), lambda h: bool(h.isfinite().all()), lambda h: h[0].tolist(), lambda h: h[h > 0],
        lambda h: h.detach().cpu(), lambda h: h.nonzero(), lambda h: h + torch.arange(32.0),
    ],
)  # fmt: skip
def test_a_planted_wait_is_found(small, act):
    parts = build_parts(*small)
    parts.module.chain = Chain([Link(planted := Planted(32))])
    planted.act = act
    with pytest.raises((RuntimeError, NotImplementedError)):
        train_on_device(parts)
