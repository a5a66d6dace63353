"""The sample that a method gets at the start of every epoch: which vectors, and that nothing else notices it."""

import json
import signal
from types import SimpleNamespace

import pytest
import torch
from helpers import build_parts, train_run
from killed_runs import stop_training

from isobench.calibration import IStar
from isobench.data.batches.tokens import EpochSampler
from isobench.training.preparation import EpochSamples


def start_epoch(overrides, epoch=0):
    module, loaders, *_ = build_parts(*overrides)
    loaders.sampler.set_epoch(epoch)
    EpochSamples(loaders).on_train_epoch_start(SimpleNamespace(current_epoch=epoch), module)
    assert all(part.training for part in module.modules())
    return module, loaders, next(iter(module.chain)).target_covariance.double()


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("placement", ["before_pooler", "after_pooler"])
def test_sentences_are_the_first_of_the_epochs_order(small, epoch, placement):
    module, loaders, found = start_epoch(
        [*small, "calibration=istar", "calibration.sample=40", f"calibration.placement={placement}"], epoch
    )
    order = list(loaders.sampler)
    batch = loaders.make_length_sorted_loader(loaders.train_tokens, 40).collate_fn(order[:40])
    with torch.no_grad():
        vectors = module.eval().encode(batch)
        vectors = module.pooler(vectors) if placement == "after_pooler" else vectors
    torch.testing.assert_close(found, torch.cov(vectors.double().T), rtol=1e-3, atol=1e-5)


def test_tokens_are_counted_in_all_layers(small):
    overrides = [*small, "calibration=istar", "calibration.scope=tokens", "calibration.sample=300"]
    module, loaders, found = start_epoch(overrides)
    order, lengths = list(loaders.sampler), loaders.train_tokens.lengths * 2  # two layers
    count = next(k for k in range(160) if lengths[order[: k + 1]].sum() > 300)
    batch = loaders.make_length_sorted_loader(loaders.train_tokens, 40).collate_fn(order[:count])
    with torch.no_grad():
        states = module.eval().encode_with_tokens(batch)[1]
    assert 200 < len(states) <= 300
    torch.testing.assert_close(found, torch.cov(states.double().T), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("batches", ["optimization.batch_size=16", "optimization.batch_tokens=200"])
def test_in_translation_decoder_states_are_counted(tiny_translation, batches):
    overrides = [*tiny_translation, batches, "calibration=istar", "calibration.sample=100"]
    module, loaders, found = start_epoch(overrides)
    sampler = EpochSampler(96, loaders.sampler.seed)  # of examples, also where the loader's is of batches
    order, lengths = list(sampler), loaders.train_tokens.targets.lengths
    count = next(k for k in range(96) if lengths[order[: k + 1]].sum() > 100)
    batch = loaders.make_length_sorted_loader(loaders.train_tokens, 40).collate_fn(order[:count])
    with torch.no_grad():
        states = module.eval().compute_decoder_states(batch)[0]
    torch.testing.assert_close(found, torch.cov(states.double().T), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", ["lanes", "torch"])
def test_with_strength_0_a_run_is_plain_fine_tuning(small, dropout, monkeypatch):
    if dropout == "torch":
        monkeypatch.setattr("isobench.kinds.classification.build.uses_cpu_dropout", lambda cfg: False)
    plain, method = (train_run(*small, *more)[0] for more in ([], ["calibration=istar", "calibration.strength=0"]))
    assert method["history"] == plain["history"]
    assert method["predictions"] == plain["predictions"]


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["cls", "tokens"])
def test_a_run_that_goes_on_within_an_epoch_takes_no_new_sample(cli, small, outputs, monkeypatch, scope):
    targets, original_prepare = [], IStar.prepare

    def prepare(self, embeddings):
        original_prepare(self, embeddings)
        targets.append(self.target_covariance.clone())

    monkeypatch.setattr(IStar, "prepare", prepare)
    arguments = [*small, "calibration=istar", f"calibration.scope={scope}", "calibration.strength=5"]
    assert cli(*arguments)[0] == 0
    (file,) = outputs.glob("runs/*/result.json")
    expected = json.loads(file.read_text())
    assert len(targets) == 2
    assert not torch.equal(*targets)
    file.unlink()
    with stop_training(lambda step, batch: step == 15):  # in the second of two epochs of ten steps
        assert cli(*arguments)[0] == 128 + signal.SIGTERM
    assert cli(*arguments)[0] == 0
    found = json.loads(file.read_text())
    assert len(targets) == 4
    torch.testing.assert_close(targets[2:], targets[:2], rtol=0, atol=0)
    assert (found["history"], found["predictions"]) == (expected["history"], expected["predictions"])
