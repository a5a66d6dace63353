"""Several calibrations in order; and every method of conf/calibration trains and resumes to the same bits."""

import json
import signal
from pathlib import Path

import pytest
import torch
from helpers import check_done, fails, make_config
from killed_runs import stop_training
from torch import nn

from isobench.calibration import Calibration, CosineRegularization, FixedNorm, IsoBN
from isobench.calibration.chain import Chain, Link
from isobench.common.packages import conf_dir
from isobench.config.command_line import Override
from isobench.config.schema import format_method_name, split_chain
from isobench.runs.validate import validate_config
from isobench.sweep.grid import expand_chains
from isobench.training.instantiate import instantiate_chain


class Shifted(Calibration):
    def __init__(self, dim, by=1.0):
        super().__init__(dim)
        self.by = nn.Parameter(torch.tensor(by))

    def forward(self, h):
        return h + self.by.detach()

    def penalty(self, weight):
        return self.by.detach() * weight.sum()

    def objective(self, h):
        return self.by * h.mean()

    def parameter_groups(self):
        return [{"params": [self.by], "lr": 0.5}]


def test_each_is_given_what_the_one_before_gives_with_the_pooler_in_its_place():
    links = [Link(Shifted(2, 3.0)), Link(Shifted(2, 5.0), "before_pooler", "vocabulary"), Link(Shifted(2, 7.0))]
    chain = Chain(links)
    h = torch.zeros(4, 2)
    out, given = chain(h, lambda x: 10 * x)
    assert [float(g[0, 0]) for g in given] == [0.0, 50.0, 53.0]  # before the pooler first, then in order
    assert float(out[0, 0]) == 60.0
    h.requires_grad_()
    _, given = chain(h, lambda x: 10 * x)
    losses = chain.losses(given, {"head": lambda: torch.ones(1, 1), "vocabulary": lambda: torch.ones(1, 2)})
    sum(losses).backward()
    assert h.grad is None  # a method's own loss reaches nothing else
    assert all(p.grad is not None for p in chain.parameters())
    assert [float(x.detach()) for x in losses] == [10.0, 0.0, 3.0, 150.0, 7.0, 371.0]
    assert [group["lr"] for group in chain.parameter_groups()] == [0.5, 0.5, 0.5]
    only_before = Chain([Link(Shifted(2, 5.0), "before_pooler")])
    assert float(only_before(h.detach(), lambda x: 10 * x)[0][0, 0]) == 50.0


class Regularised(Shifted):
    def regularize(self, h):
        return h.square().mean()


def test_a_regulariser_gets_what_its_method_is_given_and_its_gradient_reaches_the_encoder():
    before, after = Regularised(2, 3.0), Regularised(2, 3.0)
    chain = Chain([Link(Shifted(2, 5.0), "before_pooler"), Link(before, "before_pooler"), Link(after)])
    h = torch.ones(4, 2, requires_grad=True)
    _, given = chain(h, lambda x: 10 * x)
    matrices = {"head": lambda: torch.zeros(1, 2)}
    losses = chain.losses(given, matrices)
    assert [float(losses[i].detach()) for i in (3, 6)] == [6.0**2, 90.0**2]  # before what the method itself adds
    (losses[3] + losses[6]).backward()
    torch.testing.assert_close(h.grad, torch.full((4, 2), (2 * 6 + 2 * 90 * 10) / 8))


def test_the_config_of_a_chain_has_every_part_with_its_place_and_target():
    parts = expand_chains([Override.parse("calibration=[isobn_paper, fixed_norm_z,cosine]")])
    assert list(map(str, parts)) == [
        "calibration=isobn_paper", "+calibration@calibration.then=fixed_norm_z",
        "+calibration@calibration.then.then=cosine",
    ]  # fmt: skip
    cfg = make_config(*map(str, parts), "calibration.then.then.target=vocabulary")
    validate_config(cfg)
    assert format_method_name(cfg.calibration) == "isobn_paper+fixed_norm_z+cosine"
    assert [part["target"] for part in split_chain(cfg.calibration)] == ["head", "head", "vocabulary"]
    chain = instantiate_chain(cfg.calibration, 8)
    assert [type(part) for part in chain] == [FixedNorm, IsoBN, CosineRegularization]
    assert chain.pooler_position == 1
    cfg.calibration["then"]["placement"] = "nowhere"
    with fails():
        validate_config(cfg)
    pca = ["calibration=whitening_pca", "+calibration@calibration.then=batch_norm", "calibration.k=3"]
    narrow = instantiate_chain(make_config(*pca).calibration, 8)
    assert ([part.dim for part in narrow], narrow.out_dim) == ([8, 3], 3)


METHODS = sorted(file.stem for file in Path(conf_dir(), "calibration").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_and_resumes_to_the_same_bits(cli, small, outputs, method):
    arguments = [*small, f"calibration={method}", "optimization.epochs=1"]
    check_done(cli(*arguments))
    (file,) = outputs.glob("runs/*/result.json")
    expected = json.loads(file.read_text())
    assert expected["config"]["calibration"]["name"] == method
    assert expected["history"][0]["isotropy"]["embedding/ev1"] is not None
    file.unlink()
    with stop_training(lambda step, batch: step == 5):
        assert cli(*arguments)[0] == 128 + signal.SIGTERM
    assert not file.exists()
    assert cli(*arguments)[0] == 0
    found = json.loads(file.read_text())
    assert found["attempts"] == 2
    assert (found["history"], found["predictions"]) == (expected["history"], expected["predictions"])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_under_mixed_precision_on_the_vocabulary_with_accumulated_gradients(cli, small, method):
    more = ["trainer.precision=bf16-mixed", "calibration.target=vocabulary", "optimization.epochs=1"]
    more += ["optimization.batch_size=8", "optimization.accumulate=2", "task.train_samples=64"]
    check_done(cli(*small, f"calibration={method}", *more))


@pytest.mark.slow
def test_a_step_of_more_batches_than_there_are_can_be_interrupted_and_is_their_mean(cli, small, outputs):
    arguments = [*small, "optimization.accumulate=100", "optimization.epochs=1"]
    with stop_training(lambda step, batch: batch == 4):
        assert cli(*arguments)[0] == 128 + signal.SIGTERM
    assert not list(outputs.glob("runs/*/result.json"))
    assert cli(*arguments)[0] == 0
    (file,) = outputs.glob("runs/*/result.json")
    assert json.loads(file.read_text())["history"][0]["step"] == 1
