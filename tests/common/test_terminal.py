"""Check that a sweep goes on when the other end of its output is closed."""

import os
import sys

import pytest

from isobench.common.terminal import is_output_read, outlive_readers, wrap_output


@pytest.fixture
def unread():
    """Make a stream that writes to a pipe whose other end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    yield stream
    os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
    stream.close()


def test_what_nobody_reads_is_dropped(unread, monkeypatch):
    for name in ("stdout", "__stdout__", "stderr", "__stderr__"):
        monkeypatch.setattr(sys, name, unread)
    with pytest.raises(BrokenPipeError):
        print("a line", flush=True)
    with outlive_readers():
        assert is_output_read()
        print("a line", flush=True)
        print("another", file=sys.stderr, flush=True)
        assert not is_output_read()
    assert sys.stdout is sys.stderr is unread


def test_other_trouble_with_output_is_not_hidden():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        raw = wrap_output(full, full).detach().detach()
        with pytest.raises(OSError, match="No space"):
            raw.write(b"a line")
        assert raw.has_reader


def test_streams_of_others_stay_as_they_are(capsys):
    before = sys.stdout, sys.stderr
    with outlive_readers():
        assert (sys.stdout, sys.stderr) == before
        assert is_output_read()
