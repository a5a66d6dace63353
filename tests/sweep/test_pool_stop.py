"""Test how a pool stops: the running runs save, whatever signals follow and whether or not its output is read."""

import os
import signal
import sys
import time

import fake_workers
import pytest

from isobench.common.interruption import Interrupted, handle_signals, raise_interrupted
from isobench.common.terminal import outlive_readers
from isobench.sweep.pool import Ended, Pool

INT, TERM, USR2 = signal.SIGINT, signal.SIGTERM, signal.SIGUSR2


@pytest.fixture(autouse=True)
def handled_signals():
    """Outside the pool, every signal raises, so that one which comes through ends no test process."""
    with handle_signals(raise_interrupted, INT, TERM, USR2):
        yield


@pytest.fixture
def stop(monkeypatch):
    """Stop a pool of two runs by a signal; returns its workers."""

    def run(first):
        def answer(work):
            if work.cfg.seed == 1:
                time.sleep(0.1)
                os.kill(os.getpid(), first)

        with pytest.raises(Interrupted) as stopped:
            fake_workers.carry_out(monkeypatch, range(2), answer)
        assert stopped.value.signum == first
        assert len(fake_workers.FakeProcess.started) == 2
        return fake_workers.FakeProcess.started

    return run


PAIRS = [(USR2, USR2), (TERM, USR2), (INT, USR2), (TERM, TERM), (USR2, TERM)]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_second_signal_loses_no_work(monkeypatch, stop, first, second):
    monkeypatch.setattr(fake_workers.FakeProcess, "stop_signal", second)  # while the workers are told to end
    assert not any(worker.was_killed for worker in stop(first))


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_second_signal_before_the_workers_are_told_loses_no_work(monkeypatch, stop, first, second):
    stop_pool = Pool._stop

    def stop_after_signal(self):
        os.kill(os.getpid(), second)
        stop_pool(self)

    monkeypatch.setattr(Pool, "_stop", stop_after_signal)
    assert [worker.exitcode for worker in stop(first)] == [-15, -15]


def test_ctrl_c_while_runs_save_ends_their_processes(monkeypatch):
    monkeypatch.setattr(fake_workers.FakeProcess, "stop_signal", INT)

    def answer(work):
        time.sleep(0.1)
        os.kill(os.getpid(), TERM)

    with pytest.raises(KeyboardInterrupt):
        fake_workers.carry_out(monkeypatch, range(1), answer)
    assert [worker.was_killed for worker in fake_workers.FakeProcess.started] == [True]


@pytest.fixture
def unread(monkeypatch):
    """Make standard error, as every command has it, a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "__stderr__", stream)
    with outlive_readers():
        yield
    os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
    stream.close()


@pytest.mark.usefixtures("unread")
def test_a_closed_pipe_loses_no_work(stop):
    assert not any(worker.was_killed for worker in stop(INT))
    print("isobench: interrupted", file=sys.stderr, flush=True)  # what the command says next


@pytest.mark.usefixtures("unread")
def test_a_sweep_goes_on_when_nobody_reads_its_lines(monkeypatch):
    """The killed run is named in lines that can't be written."""
    answers = iter([-9, *[Ended(0, None)] * 4])
    codes, _ = fake_workers.carry_out(monkeypatch, range(4), lambda work: next(answers))
    assert codes == [0] * 4
