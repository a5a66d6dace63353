"""Output of one line, and sweeps that go on when their output can't be written any more."""

import io
import logging
import os
import sys

import pytest
from pseudo_terminal import PseudoTerminal

from isobench.common.errors import extract_first_line
from isobench.common.progress import print_above_bars
from isobench.common.terminal import (
    CONTROL_CHARACTERS,
    PlainConsole,
    PlainStream,
    is_output_read,
    make_console,
    outlive_readers,
    unwrap_stream,
    wrap_output,
)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("too long\nsecond"), "too long"),
        (ValueError("can't be loaded:\n  no such file\nthird"), "can't be loaded: no such file"),
        (ValueError(), "ValueError"),
        (ValueError("ends here:"), "ends here:"),
    ],
)
def test_an_error_is_told_in_one_line(error, line):
    assert extract_first_line(error) == line


@pytest.fixture(params=["pipe", "full disk"])
def unread(request):
    """Make a stream that writes to a pipe whose other end is closed, or to a full disk."""
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


def test_a_console_commands_a_terminal_through_the_plain_stream(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with PseudoTerminal(20, 80) as terminal:
        sys.stderr, before = PlainStream(sys.stderr), sys.stderr
        PlainConsole(stderr=True, force_terminal=True, color_system="standard").print("bold", style="bold")
        sys.stderr.flush()
        sys.stderr = before
    assert b"\x1b[1mbold" in terminal.output


def test_other_trouble_with_output_is_not_hidden():
    with open(os.open(os.devnull, os.O_RDONLY), "w") as unwritable:  # noqa: PTH123
        raw = wrap_output(unwritable, unwritable).detach().detach()
        with pytest.raises(OSError, match="Bad file descriptor"):
            raw.write(b"a line")
        assert raw.has_reader


@pytest.mark.parametrize("kind", [{"line_buffering": True}, {"write_through": True}])
def test_a_line_is_shown_at_once_where_it_was_before(kind):
    """Python's own streams are like the first on a terminal, and like the second with PYTHONUNBUFFERED=1."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(writing, "wb", 0) as raw, io.TextIOWrapper(raw, **kind) as own:  # noqa: PTH123
        print("a line", file=wrap_output(own, own))
        assert os.read(reading, 99) == b"a line\n"
    os.close(reading)
