"""Messages between processes: what is noted can be read, and no other module knows the variables' names."""

import os
import platform
import subprocess
import sys

import pytest
from helpers import ROOT

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


# The system's work for new memory, in pages, while the same tensor is made several times.
COUNT_PAGES = """
import resource, sys
from isobench.common.environment import keep_freed_memory

def count_pages(*_, **__):
    import torch
    for _ in range(8):  # the heap grows to its size
        torch.ones(1 << 24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(16):
        torch.ones(1 << 24)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, file=sys.__stdout__)
    return 0
"""
COUNT_IN_COMMAND = COUNT_PAGES + "keep_freed_memory()\ncount_pages()\n"
COUNT_IN_WORKER = (
    COUNT_PAGES
    + """
from isobench.cli import work
work._work = count_pages
sys.argv = ["isobench", "plan.json"]
work.main()
"""
)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the GNU C library's allocator")
@pytest.mark.parametrize(
    ("code", "chosen", "kept"),
    [
        (COUNT_IN_COMMAND, {}, True),
        (COUNT_IN_COMMAND, {"MALLOC_TRIM_THRESHOLD_": "131072"}, False),
        (COUNT_IN_WORKER, {}, True),
    ],
    ids=["command", "chosen", "worker"],
)
def test_freed_memory_is_kept_unless_the_user_has_chosen(code, chosen, kept):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, env=clean | chosen, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    # 16 tensors of 64 MiB have 262,144 pages of 4 KiB. A small object above the heap's end may cost some of them.
    assert (int(printed) < 100_000) == kept


@pytest.mark.parametrize("word", COMMANDS)
def test_every_word_of_the_command_is_guarded(monkeypatch, word):
    main, guarded = find_command(word), []
    needed = {"export": ["--to", "folder"], "import": ["folder"], "verify": ["folder"], "work": ["plan"]}
    monkeypatch.setattr(sys.modules[main.__module__], "run_guarded", guarded.append)
    monkeypatch.setattr("sys.argv", ["isobench", *needed.get(word, [])])
    main()
    assert len(guarded) == 1
