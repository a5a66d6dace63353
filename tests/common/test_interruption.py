"""Signals are noted, obeyed when asked for, and given back; output that nobody reads ends no sweep."""

import logging
import os
import signal
import subprocess
import sys

import pytest

from isobench.common.interruption import Interrupted, SignalWatch, handle_signals, hold_signals
from isobench.common.progress import print_above_bars
from isobench.common.terminal import CONTROL_CHARACTERS, is_output_read, make_console, outlive_readers, unwrap_stream


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


def test_a_held_signal_comes_later_and_never_to_processes_that_were_started_meanwhile(received):
    with hold_signals(signal.SIGINT):
        signal.raise_signal(signal.SIGINT)
        process = subprocess.Popen(["sleep", "60"])
        assert not received
    assert received == [signal.SIGINT]
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM


@pytest.fixture(params=["pipe", "full disk"])
def unread(request):
    reading, writing = os.pipe()
    os.close(reading)
    if request.param == "full disk":
        os.dup2(os.open("/dev/full", os.O_WRONLY), writing)
    stream = os.fdopen(writing, "w")
    yield stream
    os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
    stream.close()


def test_what_nobody_reads_is_dropped(unread, monkeypatch):
    for name in ("stdout", "__stdout__", "stderr", "__stderr__"):
        monkeypatch.setattr(sys, name, unread)
    with pytest.raises(OSError):  # noqa: PT011
        print("a line", flush=True)
    with outlive_readers():
        assert is_output_read()
        print("a line", flush=True)
        print("another", file=sys.stderr, flush=True)
        assert not is_output_read()
    assert sys.stdout is sys.stderr is unread


def test_what_a_terminal_would_obey_is_replaced_whoever_prints_it(capsys):
    evil = "a\x1b[2Jb\x9bc\rd\u202e"
    with outlive_readers():
        print(evil)
        print(evil, file=sys.stderr)
        sys.stdout.writelines([evil])
        logging.StreamHandler(sys.stderr).emit(logging.makeLogRecord({"msg": evil}))
        with print_above_bars():
            print(evil)
        assert unwrap_stream(sys.stderr) is not sys.stderr
        print("\rbar", file=sys.stderr, end="")  # of a library
        make_console().print(evil, style="bold")
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("a?[2Jb?c?d?") == 6
    left = shown.out + shown.err.replace("\rbar", "")
    assert CONTROL_CHARACTERS.sub("", left) == left
