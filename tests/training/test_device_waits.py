"""No training step makes a GPU wait or makes a tensor elsewhere, but for the exceptions that are listed here.

Every step runs in Lightning's own loop on torch's ``meta`` device, with its gradient, clipping and AdamW.
"""

from collections import Counter

import pytest
import pytorch_lightning as pl
import torch
from device_watch import DEVICE, DeviceWatch, NumberWatch, move_to_device
from helpers import ROOT, build_parts, switch_off_packing
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch.optim import optimizer as torch_optimizer

from isobench.calibration import Calibration, Chain, Link
from isobench.training.callbacks import EvaluationSchedule, Stopwatch
from isobench.training.fine_tuned import LOSS_CHECK_INTERVAL
from isobench.training.monitor import build_monitors

CALIBRATIONS = sorted(file.stem for file in (ROOT / "conf" / "calibration").glob("*.yaml"))
FAST = ("none", "isobn_paper", "istar", "spectrum_polynomial", "whitening_zca")  # one of each kind, in `make check`
# torch checks after every eigendecomposition whether it succeeded, and waits for that.
DECOMPOSING = ("spectrum_", "whitening_", "all_but_the_top")
EPOCH = 10  # steps; in an epoch's first, Lightning makes its entries of the log, and moves them to the device


class WatchedAccelerator(CPUAccelerator):
    """Let Lightning train on the watched device."""

    def setup_device(self, device):
        assert device == DEVICE


class Recorder(Callback):
    """Let the watch record in training steps and in the hooks of the callbacks before this one."""

    def __init__(self, watch):
        self.watch = watch

    def on_train_batch_start(self, trainer, *_):
        self.watch.step, self.watch.recording = trainer.global_step, True

    def on_train_batch_end(self, *_):
        self.watch.recording = False


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    """Let torch's autocast, fused AdamW and generators accept the ``meta`` device as they accept a GPU."""
    autocast, fused = torch.autocast, torch_optimizer._get_fused_kernels_supported_devices
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator("cpu" if device == DEVICE else device))
    monkeypatch.setattr(torch, "autocast", lambda kind, *a, **k: autocast("cpu" if kind == "meta" else kind, *a, **k))
    monkeypatch.setattr(torch_optimizer, "_get_fused_kernels_supported_devices", lambda: [*fused(), "meta"])


def watch_training(parts):
    """Train for three steps on the watched device; returns the events."""
    cfg, watch, steps = parts.module.cfg, DeviceWatch(), 3
    callbacks = [EvaluationSchedule(1, 9), Stopwatch(), *build_monitors(cfg), Recorder(watch)]
    strategy = SingleDeviceStrategy(device=DEVICE, accelerator=WatchedAccelerator())
    trainer = pl.Trainer(
        strategy=strategy, devices=1, max_steps=steps, deterministic=True, logger=False, callbacks=callbacks,
        gradient_clip_val=cfg.optimization.clip, accumulate_grad_batches=cfg.optimization.accumulate,
        plugins=[LightningEnvironment()], limit_val_batches=0, enable_checkpointing=False,
        enable_model_summary=False, enable_progress_bar=False,
    )  # fmt: skip
    with watch, NumberWatch(watch):
        trainer.fit(parts.module, parts.loaders.train)
    assert trainer.global_step == steps
    return watch.events


def is_allowed(event, decomposes=False):
    if event.operator == "_linalg_eigh":
        return decomposes and "common/linalg.py:eigh" in event.callers
    if event.step == 0 and "calibration/flow.py:initialize_actnorms" in event.callers:  # a resumed flow has them
        return True
    if event.step % EPOCH == 0 and "logger_connector/result.py:log" in event.callers:
        return event.kind == "other device"
    return event.step % LOSS_CHECK_INTERVAL == 0 and "training/fine_tuned.py:_raise_if_non_finite" in event.callers


def check_events(events, calibration="none"):
    decomposes = calibration.startswith(DECOMPOSING)
    assert [str(event) for event in events if not is_allowed(event, decomposes)] == []
    decompositions = Counter(event.step for event in events if event.operator == "_linalg_eigh")
    assert decompositions == (dict.fromkeys(range(3), 1) if decomposes else {})


@pytest.mark.parametrize(
    "calibration", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CALIBRATIONS]
)
def test_a_classifiers_step_never_waits(small, calibration):
    parts = build_parts(*small, f"calibration={calibration}", "optimization.clip=1.0")
    check_events(watch_training(parts), calibration)


@pytest.mark.slow
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_a_translations_step_never_waits(tiny_translation, calibration):
    parts = build_parts(*tiny_translation, f"calibration={calibration}", "optimization.clip=1.0")
    check_events(watch_training(parts), calibration)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "overhead"),
    [
        (["encoder.pooling=mean", "optimization.accumulate=2"], None),
        (["encoder.pooling=last"], 8),
        (["head=huggingface", "calibration=[batch_norm,isobn_paper]"], None),
        (["encoder.gradient_checkpointing=true", "calibration=cosine", "calibration.target=vocabulary"], None),
        (["calibration=flow", "calibration.coupling=affine", "calibration.permutation=learned"], None),
        (["calibration=spectrum_polynomial", "+calibration.reparametrize=1.0"], None),  # it decomposes nothing
        (["calibration=istar", "calibration.scope=tokens"], None),
        (["calibration=istar", "calibration.scope=tokens"], 8),
    ],
)
def test_other_settings_never_wait(small, settings, overhead, monkeypatch):
    if overhead is not None:
        switch_off_packing(monkeypatch, overhead)
    check_events(watch_training(build_parts(*small, *settings)))


def test_collecting_embeddings_for_the_isotropy_monitor_never_waits(small):
    parts = build_parts(*small, "calibration=isobn_paper")
    module, watch = parts.module.to(DEVICE).eval(), DeviceWatch()
    (monitor,) = build_monitors(module.cfg)
    monitor.on_validation_epoch_start(None, module)
    module.on_validation_epoch_start()
    batches = [move_to_device(batch) for batch in parts.loaders.dev[0]]
    with watch, NumberWatch(watch), torch.no_grad():
        watch.recording = True
        for index, batch in enumerate(batches):
            outputs = module.validation_step(batch, index)
            monitor.on_validation_batch_end(None, module, outputs, batch, index)
    assert watch.events == []
    assert sum(map(len, monitor._batches["embedding"])) == len(parts.loaders.dev[0].dataset)


class Planted(Calibration):
    """A method that does something with its embeddings that a GPU waits for, or that mixes devices."""

    def __init__(self, dim, act):
        super().__init__(dim)
        self.act = act

    def forward(self, h):
        self.act(h)
        return h


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "act"),
    [
        ("wait", lambda h: h.sum().item()),
        ("wait", lambda h: bool(h.isfinite().all())),
        ("wait", lambda h: h[0].tolist()),
        ("wait", lambda h: h.detach().cpu()),
        ("wait", lambda h: h[h > 0]),
        ("wait", lambda h: h.detach().clone().__setitem__(h > 0, 0.0)),
        ("wait", lambda h: h.nonzero()),
        ("wait", lambda h: torch.linalg.svd(h.detach())),
        ("wait", lambda h: torch.linalg.eigh(h.detach().T @ h.detach())),
        ("other device", lambda h: torch.ones(())),
        ("other device", lambda h: h + torch.arange(32.0)),
        ("other device", lambda h: torch.tensor(2.0, device=h.device)),
    ],
)
def test_a_planted_wait_is_found(small, kind, act):
    """The check can fail: each of these is found at every step, and in the method that does it."""
    parts = build_parts(*small)
    parts.module.chain = Chain([Link(Planted(32, act))])
    events = [event for event in watch_training(parts) if not is_allowed(event)]
    assert {event.step for event in events if event.kind == kind} == {0, 1, 2}
    assert all("training/test_device_waits.py:forward" in event.callers for event in events)
