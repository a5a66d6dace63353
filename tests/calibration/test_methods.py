"""Every method in conf/calibration: it trains, and a run that is interrupted goes on to the same bits."""

import json
import signal
from pathlib import Path

import pytest
import torch
from helpers import make_config
from killed_runs import check_accumulation, stop_training

from isobench.common.packages import conf_dir
from isobench.training.instantiate import instantiate_chain

pytestmark = pytest.mark.slow

METHODS = sorted(file.stem for file in Path(conf_dir(), "calibration").glob("*.yaml"))


@pytest.mark.parametrize("method", METHODS)
def test_it_trains_and_resumes_to_the_same_bits(cli, small, outputs, method):
    arguments = [*small, f"calibration={method}", "optimization.epochs=1"]
    code, _, err = cli(*arguments)
    assert code == 0, err
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
    assert found["history"] == expected["history"]
    assert found["predictions"] == expected["predictions"]


@pytest.mark.parametrize("method", METHODS)
def test_it_trains_under_mixed_precision_on_the_vocabulary_with_accumulated_gradients(cli, small, outputs, method):
    more = ["trainer.precision=bf16-mixed", "calibration.target=vocabulary", "optimization.epochs=1"]
    more += ["optimization.batch_size=8", "optimization.accumulate=2", "task.train_samples=64"]
    code, _, err = cli(*small, f"calibration={method}", *more)
    assert code == 0, err


def test_columns_that_don_t_fit_the_pooler_are_refused(cli, small, outputs):
    code, _, err = cli(*small, "calibration=whitening_pca", "calibration.k=4", "calibration.placement=before_pooler")
    assert code == 2
    assert "4 columns don't fit the pooler's 32" in err
    code, _, err = cli(*small, "calibration=whitening_pca", "calibration.k=4", "optimization.epochs=1")
    assert code == 0, err


def test_accumulated_gradients_are_the_big_batchs_and_resume_to_the_same_bits(cli, small, tiny, tmp_path):
    """For a method that sees no batch; steps and checkpoints count steps."""
    base = [*small, "calibration=spectrum_polynomial"]
    base += ["task.train_samples=152"]  # the last step has half the examples, and one batch of two
    check_accumulation(cli, base, tiny, tmp_path)


def test_a_step_of_more_batches_than_there_are_can_be_interrupted_and_is_their_mean(cli, small, outputs):
    arguments = [*small, "optimization.accumulate=100", "optimization.epochs=1"]
    with stop_training(lambda step, batch: batch == 4):
        assert cli(*arguments)[0] == 128 + signal.SIGTERM
    assert not list(outputs.glob("runs/*/result.json"))
    assert cli(*arguments)[0] == 0
    (file,) = outputs.glob("runs/*/result.json")
    assert json.loads(file.read_text())["history"][0]["step"] == 1


SMALLER = {"flow": ["calibration.levels=2", "calibration.steps=2", "calibration.width=8"]}  # traced step by step


@pytest.mark.parametrize("method", METHODS)
def test_compiled_it_is_the_same(method):
    """Output, gradient, all losses and state, over steps, with torch.compile's tracing and without."""
    calibration = make_config(f"calibration={method}", *SMALLER.get(method, [])).calibration
    chains = [instantiate_chain(calibration, 16) for _ in range(2)]
    chains[1].load_state_dict(chains[0].state_dict())
    eager, traced = (next(iter(chain)).train() for chain in chains)
    run = torch.compile(traced, backend="aot_eager")
    penalty = torch.compile(traced.penalty, backend="aot_eager")
    regularize = torch.compile(traced.regularize, backend="aot_eager")
    generator = torch.Generator().manual_seed(0)
    for step in range(3):
        h = torch.randn(12 + step, 16, generator=generator)
        weight = torch.randn(3, 16, generator=generator)
        results = []
        for forward, penal, regular, method_ in (
            (eager, eager.penalty, eager.regularize, eager),
            (run, penalty, regularize, traced),
        ):
            leaf, matrix = h.clone().requires_grad_(), weight.clone().requires_grad_()
            out = forward(leaf)
            loss = out.pow(3).sum() + penal(matrix) + regular(leaf) + method_.objective(h)
            loss.backward()
            results.append([out.detach(), leaf.grad, matrix.grad, loss.detach()])
        torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)
    states = [list(method_.state_dict().values()) for method_ in (eager, traced)]
    torch.testing.assert_close(*states, equal_nan=True)  # a state that a method does not need stays NaN
