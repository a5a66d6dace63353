"""The module: placement, chunks, loss, schedule, hooks, and the choice of a head."""

import math

import numpy as np
import pytest
import torch
from helpers import ROOT, build_parts, switch_off_packing
from pytorch_lightning.utilities import move_data_to_device
from torch import nn

from isobench.calibration import Calibration
from isobench.models.dropout import CpuDropout


def test_chunks_change_nothing(small, monkeypatch):
    one, loaders, *_ = build_parts(*small, "calibration=isobn_paper")
    switch_off_packing(monkeypatch, chunk_overhead=0)
    many, chunked, *_ = build_parts(*small, "calibration=isobn_paper")
    batch, split = next(iter(loaders.train)), next(iter(chunked.train))
    assert len(batch["chunks"]) == 1 < len(split["chunks"])
    assert "packing" in batch["chunks"][0]
    one.encoder.eval(), many.encoder.eval()  # no dropout; the calibration stays in training
    torch.testing.assert_close(one.embed(batch), many.embed(split), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        one.chain.calibrations[0].covariance, many.chain.calibrations[0].covariance, rtol=1e-4, atol=1e-7
    )


def test_placement_is_pooler_isobn_dropout_linear(small):
    module, loaders, *_ = build_parts(*small, "calibration=isobn_paper")
    batch = next(iter(loaders.train))
    module.eval()
    module.chain.calibrations[0].train()
    chunks = [module.encoder(**chunk) for chunk in batch["chunks"]]
    pooled = torch.tanh(module.pooler.dense(torch.cat(chunks)[batch["restore"]]))
    expected = module.chain.calibrations[0](pooled)
    module.chain.calibrations[0].load_state_dict(type(module.chain.calibrations[0])(32).state_dict())
    torch.testing.assert_close(module.embed(batch), expected)
    assert isinstance(module.dropout, CpuDropout)
    assert module.dropout.p == 0.02  # the encoder's own


def test_losses(small):
    module, *_ = build_parts(*small)
    logits, labels = torch.randn(5, 2), torch.tensor([0, 1, 1, 0, 1])
    rows = zip(logits.tolist(), labels, strict=True)
    expected = -np.mean([math.log(math.exp(row[y]) / sum(map(math.exp, row))) for row, y in rows])
    assert module.compute_task_loss(logits, labels).item() == pytest.approx(expected, rel=1e-5)
    module.regression = True
    scores, targets = torch.randn(5, 1), torch.randn(5)
    torch.testing.assert_close(module.compute_task_loss(scores, targets), ((scores[:, 0] - targets) ** 2).mean())


def test_decay_spares_biases_and_norms(small):
    module, *_ = build_parts(*small, "optimization.weight_decay=0.1")
    decayed, spared = module.configure_optimizers()["optimizer"].param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    named = {id(p): name for name, p in module.named_parameters()}
    assert all("bias" in named[id(p)] or "LayerNorm" in named[id(p)] for p in spared["params"])
    assert not any("bias" in named[id(p)] or "LayerNorm" in named[id(p)] for p in decayed["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(named)


def test_the_adaptation_papers_step_is_that_of_berts_pretraining(small):
    """Sec. 5.1: "Other hyper-parameters are same as pre-training": torch's AdamW with the constants of BERT."""
    module, *_ = build_parts(*small[:-3], "optimization=task_adaptation")
    optimizer = module.configure_optimizers()["optimizer"]
    assert (type(optimizer), module.cfg.optimization.clip) == (torch.optim.AdamW, 1.0)
    for group, decay in zip(optimizer.param_groups, (0.01, 0.0), strict=True):  # biases do not decay
        assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.999), 1e-6, decay)
        assert (group["amsgrad"], group["maximize"]) == (False, False)


class Everything(Calibration):
    def __init__(self, dim, strength=0.5):
        super().__init__(dim)
        self.own = nn.Linear(dim, 1)
        self.strength = strength
        self.seen = 0

    def prepare(self, embeddings):
        self.seen = sum(len(h) for h in embeddings)

    def penalty(self, weight):
        return self.strength * weight.square().sum()

    def regularize(self, h):
        return self.strength * h.pow(4).mean()

    def objective(self, h):
        return self.own(h).square().mean()

    def parameter_groups(self):
        return [{"params": list(self.own.parameters()), "lr": 0.25}]


@pytest.mark.parametrize("target", ["head", "vocabulary"])
def test_every_hook_is_used(small, target):
    method = [f"calibration._target_={__name__}.Everything", f"calibration.target={target}"]
    module, loaders, *_ = build_parts(*small, *method)
    assert module.chain.calibrations[0].seen == 160
    own = module.configure_optimizers()["optimizer"].param_groups[-1]
    assert (own["initial_lr"], own["weight_decay"]) == (0.25, 0)
    batch = next(iter(loaders.train))
    module.log, module.eval()
    module.log = lambda *_, **__: None
    loss = module.training_step(batch, 0)
    h = module.embed(batch)
    table = module.head.weight if target == "head" else module.encoder.model.get_input_embeddings().weight
    expected = (
        module.compute_task_loss(module.head(h), batch["labels"])
        + 0.5 * table.square().sum()
        + 0.5 * h.pow(4).mean()
        + module.chain.calibrations[0].own(h.detach()).square().mean()
    )
    torch.testing.assert_close(loss, expected)
    weights = module.encoder.parameters
    torch.testing.assert_close(*(torch.autograd.grad(x, weights(), allow_unused=True) for x in (loss, expected)))


@pytest.mark.parametrize("head", ["isobn", "huggingface"])
def test_the_head_starts_alike_under_every_method(small, head):
    plain, *_ = build_parts(*small, f"head={head}")
    drawing, *_ = build_parts(*small, f"head={head}", f"calibration._target_={__name__}.Everything")
    other, *_ = build_parts(*small, f"head={head}", "seeds.init=5")
    assert torch.equal(plain.head.weight, drawing.head.weight)
    assert not torch.equal(plain.head.weight, other.head.weight)
    assert torch.equal(plain.pooler.dense.weight, drawing.pooler.dense.weight)


@pytest.mark.parametrize("overrides", [[], ["head=huggingface"], ["encoder.gradient_checkpointing=true"]])
def test_encoder_and_head_get_lanes_of_dropout_where_they_can_be_repeated(small, overrides):
    module = build_parts(*small, *overrides).module
    kinds = {type(child) for child in module.modules() if "Dropout" in type(child).__name__}
    assert kinds == {nn.Dropout if "encoder.gradient_checkpointing=true" in overrides else CpuDropout}
    sources = {id(child.source) for child in module.modules() if isinstance(child, CpuDropout)}
    assert sources <= {id(module.dropout_numbers)}


CALIBRATIONS = sorted(file.stem for file in (ROOT / "conf" / "calibration").glob("*.yaml"))
FAST = ("none", "isobn_paper", "istar")
CALIBRATIONS = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CALIBRATIONS]


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_a_step_reads_no_value_of_its_device_and_mixes_no_devices(small, calibration, monkeypatch):
    """A step on the CPU, in which a flow initialises itself, then one on ``meta``, whose tensors have no values."""
    autocast, generator = torch.autocast, torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator("cpu"))
    monkeypatch.setattr(torch, "autocast", lambda kind, *a, **k: autocast("cpu" if kind == "meta" else kind, *a, **k))
    module, loaders, *_ = build_parts(*small, f"calibration={calibration}")
    module.log = module._raise_if_non_finite = lambda *_, **__: None  # read now and then, and at an epoch's end
    for device in ("cpu", "meta"):
        module.to(device).train()
        loss = module.training_step(move_data_to_device(next(iter(loaders.train)), torch.device(device)), 0)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    assert loss.device.type == "meta"
