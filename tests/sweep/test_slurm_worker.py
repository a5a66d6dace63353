"""Check that a job of the queue carries out exactly the run that was submitted, or refuses it."""

import signal
from dataclasses import replace

import pytest
from helpers import make_config

from isobench.common.interruption import STOP_SIGNALS, raise_interrupted
from isobench.runs.identity import identify
from isobench.sweep.slurm import Worker, requeue_or_exit


@pytest.fixture
def submitted(tmp_path):
    cfg = make_config("tracking=none", f"output_dir={tmp_path}/outputs")
    return cfg, identify(cfg).key


def test_a_job_whose_run_has_another_key_now_refuses_it(submitted, tmp_path, capsys):
    """Change a run's key after submission, as a damaged job file or changed data or weights would."""
    cfg, key = submitted
    changed = replace(cfg, optimization=replace(cfg.optimization, lr=cfg.optimization.lr * 2))
    assert Worker([(changed, key)])._execute_share(0, 1) == [2]
    assert "have changed since this job was submitted" in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


@pytest.fixture
def handled_signals():
    """Install handlers as in a job, where every signal interrupts the work."""
    old = {signum: signal.signal(signum, raise_interrupted) for signum in STOP_SIGNALS}
    yield
    for signum, handler in old.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("handled_signals")
@pytest.mark.parametrize("later", STOP_SIGNALS)
def test_a_signal_while_a_job_is_requeued_does_not_stop_the_requeue(later):
    steps = []

    def requeue(signum, frame):
        steps.append("asked")
        signal.raise_signal(later)
        steps.append("requeued")
        raise SystemExit(255)

    signal.signal(signal.SIGUSR2, requeue)
    with pytest.raises(SystemExit):
        requeue_or_exit(signal.SIGUSR2, None)
    assert steps == ["asked", "requeued"]
