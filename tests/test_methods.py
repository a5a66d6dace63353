"""Every method in conf/calibration: it trains, and a run that is interrupted goes on to the same bits."""

import json
import os
import signal
from pathlib import Path

import pytest

from isobench.resources import conf_dir

METHODS = sorted(file.stem for file in Path(conf_dir(), "calibration").glob("*.yaml"))


@pytest.mark.parametrize("method", METHODS)
def test_it_trains_and_resumes_to_the_same_bits(cli, small, outputs, monkeypatch, method):
    from isobench.checkpoint import Checkpointer

    arguments = [*small, f"calibration={method}", "optimization.epochs=1"]
    code, _, err = cli(*arguments)
    assert code == 0, err
    (file,) = outputs.glob("runs/*/result.json")
    expected = json.loads(file.read_text())
    assert expected["config"]["calibration"]["name"] == method
    assert expected["history"][0]["isotropy"]["embedding/ev1"] is not None
    file.unlink()
    original = Checkpointer.on_train_batch_end

    def interrupt(self, trainer, *rest):
        if trainer.global_step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, trainer, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "on_train_batch_end", interrupt)
        assert cli(*arguments)[0] == 128 + signal.SIGTERM
    assert not file.exists()
    assert cli(*arguments)[0] == 0
    found = json.loads(file.read_text())
    assert found["attempts"] == 2
    assert found["history"] == expected["history"]
    assert found["predictions"] == expected["predictions"]


@pytest.mark.parametrize("method", METHODS)
def test_it_trains_under_mixed_precision_on_the_vocabulary(cli, small, outputs, method):
    more = ["trainer.precision=bf16-mixed", "calibration.target=vocabulary", "optimization.epochs=1"]
    code, _, err = cli(*small, f"calibration={method}", *more)
    assert code == 0, err


def test_columns_that_don_t_fit_the_pooler_are_refused(cli, small, outputs):
    code, _, err = cli(*small, "calibration=whitening_pca", "calibration.k=4", "calibration.placement=before_pooler")
    assert code == 2
    assert "4 columns don't fit the pooler's 32" in err
    code, _, err = cli(*small, "calibration=whitening_pca", "calibration.k=4", "optimization.epochs=1")
    assert code == 0, err
