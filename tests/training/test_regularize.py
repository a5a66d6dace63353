"""The hook ``regularize``: the example of CONTRIBUTING.md in whole runs, accumulated, resumed, and in translation."""

import json
import os
import re
import shutil
import signal
import sys

import pytest
import torch
from helpers import ROOT, make_config

from isobench.calibration import Calibration, Chain, Link
from isobench.runs.identity import identify
from isobench.training.build import build_run_parts

YAML = "name: short\n_target_: short.Short\nversion: 1\nplacement: after_pooler\ntarget: head\nstrength: 0.01\n"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The page's example as a module that can be imported; returns the folder with its YAML."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    (block,) = re.findall(r"^    # short\.py\n((?:    .*\n|\n)+)", page, re.MULTILINE)
    (tmp_path / "short.py").write_text(re.sub(r"^ {4}", "", block, flags=re.MULTILINE))
    (tmp_path / "conf" / "calibration").mkdir(parents=True)
    (tmp_path / "conf" / "calibration" / "short.yaml").write_text(YAML)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "conf"
    sys.modules.pop("short", None)


def test_the_pages_example_adds_the_mean_squared_length(example):
    from short import Short

    h = torch.randn(6, 4, requires_grad=True)
    loss = Short(4, 0.5).regularize(h)
    assert loss.item() == pytest.approx(0.5 * h.detach().norm(dim=1).square().mean().item())
    loss.backward()
    torch.testing.assert_close(h.grad, h.detach() / 6)


def run_history(cli, outputs, seen, arguments):
    code, _, err = cli(*arguments)
    assert code == 0, err
    (file,) = set(outputs.glob("runs/*/result.json")) - seen
    seen.add(file)
    return json.loads(file.read_text())


@pytest.mark.slow
def test_the_pages_example_trains_in_a_chain_under_mixed_precision(cli, small, outputs, example):
    base = [*small, "--config-dir", str(example), "optimization.epochs=1", "trainer.precision=bf16-mixed"]
    base += ["calibration=[isobn_paper,short]"]
    seen: set = set()
    results = [run_history(cli, outputs, seen, [*base, f"calibration.then.strength={s}"]) for s in (0.0, 10.0)]
    assert results[0]["history"] != results[1]["history"]


@pytest.mark.slow
def test_accumulated_it_is_the_big_batchs_and_resumes_to_the_same_bits(
    cli, small, tiny, outputs, example, tmp_path, monkeypatch
):
    """2 x 8 examples a step is 1 x 16, because the example is a mean over rows."""
    from isobench.training.checkpoint import Checkpointer

    still = tmp_path / "still"  # the same encoder without dropout
    shutil.copytree(tiny, still)
    config = json.loads((still / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (still / "config.json").write_text(json.dumps(config))
    base = [*small, "--config-dir", str(example), f"encoder.path={still}", "calibration=short"]
    base += ["calibration.strength=0.5", "optimization.epochs=1"]
    halves = [*base, "optimization.batch_size=8", "optimization.accumulate=2"]
    seen: set = set()
    one, two = run_history(cli, outputs, seen, base), run_history(cli, outputs, seen, halves)
    for name, value in one["history"][0]["isotropy"].items():
        if "printed" not in name:  # rows of an eigenvector matrix whose kernel's basis is arbitrary
            assert two["history"][0]["isotropy"][name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    (file,) = (f for f in seen if json.loads(f.read_text())["key"] == two["key"])
    file.unlink(), seen.remove(file)
    original, steps = Checkpointer.on_train_batch_end, []

    def interrupt(self, trainer, *rest):
        steps.append(trainer.global_step)
        if len(steps) == 11:  # between two batches of one step
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, trainer, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "on_train_batch_end", interrupt)
        assert cli(*halves)[0] == 128 + signal.SIGTERM
    again = run_history(cli, outputs, seen, halves)
    assert again["attempts"] == 2
    assert (again["history"], again["predictions"]) == (two["history"], two["predictions"])


class Kept(Calibration):
    """A regulariser that keeps what it is given."""

    def regularize(self, h):
        self.seen = h
        return h.square().mean()


def test_in_translation_it_gets_the_decoders_states(tiny_translation):
    cfg = make_config(*tiny_translation, "optimization.label_smoothing=null")
    module, loaders, *_ = build_run_parts(cfg, identify(cfg))
    module.eval()
    module.log = lambda *_, **__: None
    batch = next(iter(loaders.train))
    plain = module.training_step(batch, 0)
    states = module.compute_decoder_states(batch)[0]
    module.chain = module.projection.chain = Chain([Link(kept := Kept(32))])
    total = module.training_step(batch, 0)
    torch.testing.assert_close(kept.seen, states)
    torch.testing.assert_close(total, plain + states.square().mean())
    total.backward()
    regularised = module.model.model.decoder.layers[0].fc1.weight.grad.clone()
    module.zero_grad()
    plain.backward()
    assert not torch.allclose(regularised, module.model.model.decoder.layers[0].fc1.weight.grad)
