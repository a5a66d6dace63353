"""Output of one line, and sweeps that go on when their output can't be written any more."""

import logging
import os
import sys

import pytest

from isobench.common.progress import print_above_bars
from isobench.common.terminal import CONTROL_CHARACTERS, is_output_read, make_console, outlive_readers, unwrap_stream


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
    assert CONTROL_CHARACTERS.sub("", shown.out + shown.err.replace("\rbar", "")) == (
        shown.out + shown.err.replace("\rbar", "")
    )
