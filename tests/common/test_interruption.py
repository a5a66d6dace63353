"""Signals are noted, obeyed when asked for, and given back."""

import os
import signal
import subprocess
import sys

import pytest

from isobench.common.interruption import (
    Interrupted,
    SignalWatch,
    handle_signals,
    hold_signals,
    obey_ctrl_c,
    raise_if_noted,
    raise_interrupted,
)
from isobench.common.progress import track_progress


@pytest.fixture
def received():
    signums = []
    with handle_signals(lambda signum, frame: signums.append(signum), signal.SIGTERM, signal.SIGINT):
        yield signums


def test_the_first_signal_is_noted_and_raised_when_asked_for(received):
    watch = SignalWatch()
    watch.start()
    watch.raise_if_signalled()
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Interrupted, match="interrupted by SIGTERM"):
        watch.raise_if_signalled()
    watch.stop()
    os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGTERM]


def test_a_second_ctrl_c_stops_at_once(received):
    watch = SignalWatch()
    watch.start()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    watch.stop()


def test_an_ignored_signal_stays_ignored(received):
    with handle_signals(signal.SIG_IGN, signal.SIGINT):
        watch = SignalWatch()
        watch.start()
        os.kill(os.getpid(), signal.SIGINT)
        watch.raise_if_signalled()
        watch.stop()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


class Destroyed:
    """Receives a signal while it is destroyed."""

    def __init__(self, signum):
        self.signum = signum

    def __del__(self):
        signal.raise_signal(self.signum)
        self.is_destroyed_whole = True


@pytest.fixture
def dropped(monkeypatch):
    kinds = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropping: kinds.append(dropping.exc_type))
    return kinds


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_arrives_while_an_object_is_destroyed_is_noted(dropped, signum):
    with obey_ctrl_c(), handle_signals(raise_interrupted, signal.SIGTERM):
        Destroyed(signum)
        assert not dropped
        with pytest.raises(Interrupted, match=signal.Signals(signum).name):
            raise_if_noted()
        with pytest.raises(Interrupted):
            list(track_progress("abc", "letters"))
        watch = SignalWatch()
        watch.start()
        with pytest.raises(Interrupted):
            watch.raise_if_signalled()
        watch.stop()
        with pytest.raises(KeyboardInterrupt if signum == signal.SIGINT else Interrupted):
            signal.raise_signal(signum)
    raise_if_noted()  # the next command begins anew


def test_a_held_signal_comes_later_and_never_to_processes_that_were_started_meanwhile(received):
    with hold_signals(signal.SIGINT):
        signal.raise_signal(signal.SIGINT)
        process = subprocess.Popen(["sleep", "60"])
        assert not received
    assert received == [signal.SIGINT]
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
