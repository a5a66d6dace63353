"""Signals are noted, obeyed when asked for, and given back."""

import os
import pickle
import signal

import pytest

from isobench.common.interruption import Interrupted, SignalWatch, handle_signals


@pytest.fixture
def received():
    """The signals that reach the handlers which were there before the watch."""
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


def test_an_interruption_survives_pickling():
    assert pickle.loads(pickle.dumps(Interrupted(signal.SIGTERM))).signum == signal.SIGTERM
