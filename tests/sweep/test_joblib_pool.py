"""A worker of joblib's pool that a signal stopped refuses the runs that joblib still hands it."""

import signal

import pytest

from isobench.common import environment
from isobench.common.interruption import Interrupted
from isobench.sweep import joblib_pool


def interrupted() -> int:
    raise Interrupted(signal.SIGTERM)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(joblib_pool, "_stop_code", None)


def test_a_stopped_worker_starts_no_other_run(monkeypatch):
    monkeypatch.setattr(environment, "is_pool_worker", lambda: True)
    assert joblib_pool.run_unless_stopped(lambda: 1) == 1
    assert joblib_pool.run_unless_stopped(interrupted) == 128 + signal.SIGTERM
    assert joblib_pool.run_unless_stopped(lambda: pytest.fail("started")) == 128 + signal.SIGTERM


def test_in_other_processes_a_signal_ends_the_sweep():
    with pytest.raises(Interrupted):
        joblib_pool.run_unless_stopped(interrupted)
    assert joblib_pool.run_unless_stopped(lambda: 0) == 0
