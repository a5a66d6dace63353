"""Every word of the command answers errors and signals in the same way."""

import sys

import pytest

from isobench.__main__ import COMMANDS, find_command


@pytest.mark.parametrize("word", COMMANDS)
def test_every_word_of_the_command_is_guarded(monkeypatch, word):
    main, guarded = find_command(word), []
    needed = {"export": ["--to", "folder"], "import": ["folder"], "verify": ["folder"], "work": ["plan"]}
    monkeypatch.setattr(sys.modules[main.__module__], "run_guarded", guarded.append)
    monkeypatch.setattr("sys.argv", ["isobench", *needed.get(word, [])])
    main()
    assert len(guarded) == 1
