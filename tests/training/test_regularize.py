"""The hook ``regularize``: the example of CONTRIBUTING.md in whole runs, accumulated, resumed, and in translation."""

import json
import re
import sys

import pytest
import torch
from helpers import ROOT, build_parts
from killed_runs import check_accumulation

from isobench.calibration import Calibration, Chain, Link

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


@pytest.mark.slow
def test_the_pages_example_runs_in_the_same_grid_as_our_methods_under_mixed_precision(cli, small, outputs, example):
    base = [*small, "--config-dir", str(example), "optimization.epochs=1", "trainer.precision=bf16-mixed", "-m"]
    code, out, err = cli(*base, "calibration=none,short,[short,isobn_paper]")
    assert code == 0, err
    assert "short+isobn_paper" in out
    code, _, err = cli(*base, "calibration=short", "calibration.strength=10.0,20.0")
    assert code == 0, err
    records = [json.loads(file.read_text()) for file in outputs.glob("runs/*/result.json")]
    assert sorted(record["config"]["calibration"]["name"] for record in records) == ["none", *["short"] * 4]
    assert len({json.dumps(record["history"]) for record in records}) == 5


@pytest.mark.slow
def test_accumulated_it_is_the_big_batchs_and_resumes_to_the_same_bits(cli, small, tiny, example, tmp_path):
    """Because the example is a mean over rows."""
    base = [*small, "--config-dir", str(example), "calibration=short", "calibration.strength=0.5"]
    check_accumulation(cli, base, tiny, tmp_path)


class Kept(Calibration):
    """A regulariser that keeps what it is given."""

    def regularize(self, h):
        self.seen = h
        return h.square().mean()


def test_in_translation_it_gets_the_decoders_states(tiny_translation):
    module, loaders, *_ = build_parts(*tiny_translation, "optimization.label_smoothing=null")
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
