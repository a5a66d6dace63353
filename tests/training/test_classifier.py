"""The module: placement, chunks, loss, schedule, hooks, and the choice of a head."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import build_parts, fails, make_config, save_tiny, switch_off_packing
from torch import nn

from isobench.calibration import Calibration
from isobench.common.errors import RunFailure
from isobench.common.packages import conf_dir
from isobench.config.schema import Encoder
from isobench.data.packaged import encoders as packaged_encoders
from isobench.data.weights import read_width
from isobench.models.dropout import CpuDropout
from isobench.models.encoders import load_encoder
from isobench.runs.validate import validate_config
from isobench.training.instantiate import check_method_settings


def test_chunks_change_nothing(small, monkeypatch):
    """One packed row or many chunks: the same embeddings, in the same order, and so the same batch statistics."""
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
    expected = -np.mean(
        [math.log(math.exp(row[y]) / sum(map(math.exp, row))) for row, y in zip(logits.tolist(), labels, strict=True)]
    )
    assert module.compute_task_loss(logits, labels).item() == pytest.approx(expected, rel=1e-5)
    module.regression = True
    scores, targets = torch.randn(5, 1), torch.randn(5)
    assert module.compute_task_loss(scores, targets).item() == pytest.approx(
        ((scores[:, 0] - targets) ** 2).mean().item()
    )


def test_decay_spares_biases_and_norms(small):
    module, *_ = build_parts(*small, "optimization.weight_decay=0.1")
    decayed, spared = module.configure_optimizers()["optimizer"].param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    named = {id(p): name for name, p in module.named_parameters()}
    assert all("bias" in named[id(p)] or "LayerNorm" in named[id(p)] for p in spared["params"])
    assert not any("bias" in named[id(p)] or "LayerNorm" in named[id(p)] for p in decayed["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(named)


def test_the_adaptation_papers_step_is_that_of_berts_pretraining(small):
    """Sec. 5.1: "Other hyper-parameters are same as pre-training". Adam's step in float64, from BERT's constants.

    BERT's own code leaves out Adam's correction of the first steps; AdamW, which the paper names, has it.
    """
    module, *_ = build_parts(*small[:-3], "optimization=task_adaptation")
    optimizer = module.double().configure_optimizers()["optimizer"]
    assert module.cfg.optimization.clip == 1.0
    rng = np.random.default_rng(0)
    pairs = {True: (module.head.weight, 0.01), False: (module.head.bias, 0.0)}  # biases do not decay
    expected = {name: weight.detach().numpy().copy() for name, (weight, _) in pairs.items()}
    moments = {name: np.zeros((2, *value.shape)) for name, value in expected.items()}
    for step in range(1, 4):
        rate = 5e-5 * 0.7**step
        for group in optimizer.param_groups:
            group["lr"] = rate
        for name, (weight, decay) in pairs.items():
            gradient = rng.normal(0, 1e-6, tuple(weight.shape))  # as small as epsilon, so that epsilon counts
            weight.grad = torch.tensor(gradient)
            moments[name][0] = 0.9 * moments[name][0] + 0.1 * gradient
            moments[name][1] = 0.999 * moments[name][1] + 0.001 * gradient**2
            first, second = moments[name][0] / (1 - 0.9**step), moments[name][1] / (1 - 0.999**step)
            expected[name] = expected[name] - rate * (first / (np.sqrt(second) + 1e-6) + decay * expected[name])
        optimizer.step()
    for name, (weight, _) in pairs.items():
        np.testing.assert_allclose(weight.detach().numpy(), expected[name], rtol=1e-12)


class Everything(Calibration):
    """Uses every hook."""

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
    assert module.configure_optimizers()["optimizer"].param_groups[-1]["initial_lr"] == 0.25
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
    gradients = [
        torch.autograd.grad(total, module.encoder.parameters(), allow_unused=True) for total in (loss, expected)
    ]
    torch.testing.assert_close(*gradients)
    module.zero_grad()
    module.chain.calibrations[0].objective(module.embed(batch).detach()).backward()
    assert module.chain.calibrations[0].own.weight.grad is not None
    assert all(p.grad is None for p in module.encoder.parameters())


class ForOneWidth(Calibration):
    """A user's method that can't be made for another width than its encoder's."""

    def __init__(self, dim: int) -> None:
        assert dim == 32
        super().__init__(dim)


@pytest.mark.slow
def test_settings_are_checked_before_the_width_is_known():
    """No setting that suits some encoder is refused, and no user's method is made; one that none takes is refused."""
    base = {"name": "x", "version": 1, "placement": "before_pooler", "target": "head"}
    wide = [
        {"_target_": "isobench.calibration.Centering", "kind": "all_but_the_top", "D": 4096},
        {"_target_": "isobench.calibration.Whitening", "form": "pca", "k": 768},
        {"_target_": "isobench.calibration.Flow", "levels": 10, "permutation": "learned"},
        {"_target_": f"{__name__}.ForOneWidth"},
    ]
    check_method_settings([base | settings for settings in wide])
    folder = Path(conf_dir()) / "calibration"
    check_method_settings(make_config(f"calibration={file.stem}").calibration for file in folder.glob("*.yaml"))
    chain = base | wide[0] | {"then": base | {"_target_": "isobench.calibration.IsoBN", "eps": -1}}
    with fails():
        check_method_settings([chain])
    with fails():
        check_method_settings([base | {"_target_": "isobench.calibration.nowhere.No"}])
    with fails():
        check_method_settings([base | {"_target_": "collections.Counter"}])


def test_more_columns_than_the_encoder_has_are_refused_before_a_run(cli, small):
    for k, code in ((33, 2), (32, 0)):
        found, _, err = cli(*small, "calibration=whitening_pca", f"calibration.k={k}", "dry_run=true")
        assert found == code, err
        assert ("k=33 must be between 1 and 32" in err) == (code == 2)


@pytest.mark.parametrize("name", ["minilm", "distilbert-quire", "mpnet", "smollm2-4bit"])
def test_the_width_of_a_packaged_encoder_is_known_before_it_is_loaded(name, monkeypatch):
    encoder = make_config(f"encoder={name}").encoder
    if name != "minilm":  # whose config is in the package alone
        monkeypatch.setattr(packaged_encoders, "find_packaged_weights", None)
    assert read_width(encoder) == {"minilm": 384, "distilbert-quire": 768, "mpnet": 768, "smollm2-4bit": 576}[name]


def test_a_loss_that_is_not_finite_has_a_name_and_a_step(small):
    module, *_ = build_parts(*small)
    module._note_non_finite_loss(torch.tensor(1.0))
    with pytest.raises(RunFailure, match="step 1") as failure:
        module._note_non_finite_loss(torch.tensor(math.inf))
    assert (failure.value.name, failure.value.step) == ("non_finite_loss", 1)


@pytest.mark.parametrize("head", ["isobn", "huggingface"])
def test_the_head_starts_alike_under_every_method(small, head):
    """A method that draws random numbers of its own must not change what the others start from."""
    plain, *_ = build_parts(*small, f"head={head}")
    drawing, *_ = build_parts(*small, f"head={head}", f"calibration._target_={__name__}.Everything")
    other, *_ = build_parts(*small, f"head={head}", "seeds.init=5")
    assert torch.equal(plain.head.weight, drawing.head.weight)
    assert not torch.equal(plain.head.weight, other.head.weight)
    assert torch.equal(plain.pooler.dense.weight, drawing.pooler.dense.weight)


@pytest.mark.parametrize(
    "wrong",
    [
        ["head.dropout=0"], ["encoder.pooling=mean"], ["encoder.layer=0"], ["scale=paper", "encoder=gpt2"],
        ["+experiment=isobn_ev"],
    ],
)  # fmt: skip
def test_settings_that_the_head_does_not_have_are_refused(wrong):
    with fails():
        validate_config(make_config("head=huggingface", *wrong))


def test_the_architecture_is_checked_when_a_run_is_planned_and_before_weights_are_read(small, tmp_path):
    save_tiny(tmp_path / "gpt2", "gpt2")
    folder = [*small, "head=huggingface", f"encoder.path={tmp_path / 'gpt2'}"]
    with fails():
        validate_config(make_config(*folder))
    (tmp_path / "gpt2" / "model.safetensors").write_bytes(b"damaged")
    with fails():
        load_encoder(Encoder(name="gpt2", path=str(tmp_path / "gpt2")), None, seed=1, head="huggingface")
    for content in ("[]", "{}", '{"model_type": 3}', "damaged"):
        (tmp_path / "gpt2" / "config.json").write_text(content)
        validate_config(make_config(*folder))  # not known before loading
