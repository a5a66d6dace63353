"""Messages between processes: what is noted can be read, and no other module knows the variables' names."""

import os
import sys

import pytest

from isobench.__main__ import COMMANDS, find_command


@pytest.fixture(autouse=True)
def no_messages(monkeypatch):
    for name in list(os.environ):
        if name.startswith("ISOBENCH_"):
            monkeypatch.delenv(name)
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


@pytest.mark.parametrize("word", COMMANDS)
def test_every_word_of_the_command_is_guarded(monkeypatch, word):
    main, guarded = find_command(word), []
    needed = {"export": ["--to", "folder"], "import": ["folder"], "verify": ["folder"], "work": ["plan"]}
    monkeypatch.setattr(sys.modules[main.__module__], "run_guarded", guarded.append)
    monkeypatch.setattr("sys.argv", ["isobench", *needed.get(word, [])])
    main()
    assert len(guarded) == 1
