"""Messages between processes: what is noted can be read, and no other module knows the variables' names."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

from isobench.__main__ import COMMANDS, find_command
from isobench.common import environment


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


# Run in a process of its own: the first import of torch prints the waiting policy, and ends what asked for it.
WATCH_TORCH = """
import os, pickle, runpy, sys
from pathlib import Path
from types import SimpleNamespace

class TorchImported(BaseException):
    pass

class Watch:
    def find_spec(self, name, *_):
        if name == "torch":
            print("torch", os.environ.get("GOMP_SPINCOUNT"))
            raise TorchImported

sys.meta_path.insert(0, Watch())
"""
RUN = """
sys.argv = ["isobench", *{arguments!r}]
try:
    runpy.run_module({module!r}, run_name="__main__")
except TorchImported:
    pass
"""


def watch_torch(code: str, folder: Path) -> list[str]:
    """Run code in a process without a waiting policy; returns the words that it prints."""
    clean = {name: value for name, value in os.environ.items() if name not in environment.SPIN_SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", WATCH_TORCH + code],
        capture_output=True, text=True, check=False, env={**clean, "PYTHONPATH": str(ROOT)}, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_the_command_sets_it_before_torch_is_imported(tmp_path):
    arguments = ["tracking=none", f"output_dir={tmp_path}"]
    printed = watch_torch(RUN.format(module="isobench", arguments=arguments), tmp_path)
    assert printed[:2] == ["torch", "1000"]
    assert set(printed) == {"torch", "1000"}


@pytest.mark.parametrize("word", COMMANDS)
def test_every_word_of_the_command_is_guarded_and_so_sets_it(monkeypatch, word):
    main, guarded = find_command(word), []
    needed = {"export": ["--to", "folder"], "import": ["folder"], "verify": ["folder"], "work": ["plan"]}
    monkeypatch.setattr(sys.modules[main.__module__], "run_guarded", guarded.append)
    monkeypatch.setattr("sys.argv", ["isobench", *needed.get(word, [])])
    main()
    assert len(guarded) == 1
