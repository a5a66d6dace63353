"""Every method in conf/calibration: it trains, and a run that is interrupted goes on to the same bits."""

import json
import signal
from pathlib import Path

import pytest
from helpers import check_done
from killed_runs import check_accumulation, stop_training

from isobench.common.packages import conf_dir

pytestmark = pytest.mark.slow

METHODS = sorted(file.stem for file in Path(conf_dir(), "calibration").glob("*.yaml"))


@pytest.mark.parametrize("method", METHODS)
def test_it_trains_and_resumes_to_the_same_bits(cli, small, outputs, method):
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


@pytest.mark.parametrize("method", METHODS)
def test_it_trains_under_mixed_precision_on_the_vocabulary_with_accumulated_gradients(cli, small, outputs, method):
    more = ["trainer.precision=bf16-mixed", "calibration.target=vocabulary", "optimization.epochs=1"]
    more += ["optimization.batch_size=8", "optimization.accumulate=2", "task.train_samples=64"]
    check_done(cli(*small, f"calibration={method}", *more))


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
